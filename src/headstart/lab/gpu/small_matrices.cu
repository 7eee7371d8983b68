// Many small matrices in double precision: the functions of headstart.small_matrices, on the chip.
//
// A matrix has N ≤ 32 rows. Where it is inverted or decomposed it belongs to W lanes, all of a warp
// or, where N ≤ 16, half of one: lane j holds column j in registers, which for a symmetric matrix is
// row j as well. Products are the tensor cores' (multiply_add). R is the number of columns of what
// N × N matrices are multiplied by.

#define ALL 0xffffffffu

__host__ __device__ constexpr int even(int size) { return size + size % 2; }

constexpr int WARPS = 4;  // of a block; how many blocks a multiprocessor has at a time was found by trial

// --- Inverses ----------------------------------------------------------------------------------

// One column of the inverse of a symmetric, positive definite matrix, from that of the matrix.
//
// Sweeps, which keep the matrix symmetric: a_ij − a_ik a_kj/a_kk, a_ik/a_kk and, in the place of
// a_kk, −1/a_kk. Lane k's division is left to the end, as the factor `scale` of its column.
// Returned is a_kk of lane k's own sweep; the product of these is the determinant.
template <int SIZE, int LANES>
__device__ __forceinline__ double invert(double (&a)[LANES], int lane, double* rows) {
  double scale = 1.0, pivot = 1.0;
#pragma unroll
  for (int k = 0; k < SIZE; ++k) {
    double* row = rows + k % 2 * (LANES + 2);
    row[lane] = scale * a[k];
    __syncwarp();
    double inverse = 1.0 / row[k];
    bool own = lane == k;
    pivot = own ? row[k] : pivot;
    double step = own ? 0.0 : a[k] * inverse;
#pragma unroll
    for (int i = 0; i < SIZE; i += 2) {
      double2 two = *reinterpret_cast<double2*>(row + i);
      if (i != k) a[i] = fma(-two.x, step, a[i]);
      if (i + 1 < SIZE && i + 1 != k) a[i + 1] = fma(-two.y, step, a[i + 1]);
    }
    a[k] = own ? -1.0 : step;
    scale = own ? inverse : scale;
  }
#pragma unroll
  for (int i = 0; i < SIZE; ++i) a[i] *= -scale;
  __syncwarp();
  return pivot;
}

// --- Products ----------------------------------------------------------------------------------

// A warp's product of 8 × 4 and 4 × 8 numbers, C += A B. Lane 4 r + q has A[r][q], B[q][r], and
// C[r][2q] and C[r][2q + 1]. So what is C of one product can be A of the next, if that adds up over
// its columns in the order 2q, 2q + 1; and of a symmetric matrix what is A is B as well.
__device__ __forceinline__ void multiply_add(double2& c, double a, double b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c.x), "+d"(c.y)
      : "d"(a), "d"(b));
#else
  int row = threadIdx.x % 32 & ~3, column = threadIdx.x % 4 * 8;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    double left = __shfl_sync(ALL, a, row | k);
    c.x = fma(left, __shfl_sync(ALL, b, column | k), c.x);
    c.y = fma(left, __shfl_sync(ALL, b, column | 4 | k), c.y);
  }
#endif
}

__device__ __forceinline__ double part(double2 pair, int at) { return at ? pair.y : pair.x; }

// Tiles of 8 rows, steps of 4 columns, and columns between rows in shared memory such that lanes
// read from different banks.
[[maybe_unused]] constexpr int TILES = (N + 7) / 8;
[[maybe_unused]] constexpr int STEPS = (N + 3) / 4;
[[maybe_unused]] constexpr int STRIDE = N <= 16 ? 20 : 36;

// A number of a matrix with so many columns; 0 outside.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ double entry(const double* matrix, int row, int column) {
  return row < ROWS && column < COLUMNS ? matrix[row * COLUMNS + column] : 0.0;
}

template <int COUNT, int WIDTH>
__device__ __forceinline__ void clear(double2 (&tiles)[COUNT][WIDTH]) {
#pragma unroll
  for (int m = 0; m < COUNT; ++m)
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) tiles[m][n] = make_double2(0.0, 0.0);
}

// Write N × N numbers that lanes have as C.
__device__ __forceinline__ void store(double* to, const double2 (&tiles)[TILES][TILES], int r, int q) {
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      int row = 8 * m + r, column = 8 * n + 2 * q;
      if (row < N && column < N) to[row * N + column] = tiles[m][n].x;
      if (row < N && column + 1 < N) to[row * N + column + 1] = tiles[m][n].y;
    }
}

// --- A matrix at a time --------------------------------------------------------------------------

[[maybe_unused]] constexpr int W = N <= 16 ? 16 : 32;
[[maybe_unused]] constexpr int GROUPS = WARPS * 32 / W;

__device__ __forceinline__ double group_sum(double x) {
#pragma unroll
  for (int gap = W / 2; gap; gap /= 2) x += __shfl_xor_sync(ALL, x, gap);
  return x;
}

#ifdef SPD_INVERSE

extern "C" __global__ void __launch_bounds__(32 * WARPS)
spd_inverse(const double* __restrict__ matrices, double* __restrict__ inverses, long long count) {
  __shared__ __align__(16) double rows[GROUPS][2 * (W + 2) + 2];
  int lane = threadIdx.x % W, group = threadIdx.x / W;
  long long at = (long long)blockIdx.x * GROUPS + group;
  bool used = at < count && lane < N;
  const double* from = matrices + (used ? at : 0) * N * N;
  double a[W];
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = used ? from[i * N + lane] : double(i == lane);
  invert<N, W>(a, lane, rows[group]);
  if (!used) return;
#pragma unroll
  for (int i = 0; i < N; ++i) inverses[at * N * N + i * N + lane] = a[i];
}
#endif

#ifdef SYMMETRIC_MATVEC
extern "C" __global__ void __launch_bounds__(32 * WARPS)
symmetric_matvec(const double* __restrict__ matrices, const double* __restrict__ vectors,
                 double* __restrict__ images, long long count) {
  __shared__ __align__(16) double rows[GROUPS][W + 2];
  int lane = threadIdx.x % W, group = threadIdx.x / W;
  long long at = (long long)blockIdx.x * GROUPS + group;
  bool used = at < count && lane < N;
  const double* from = matrices + (used ? at : 0) * N * N;
  rows[group][lane] = used ? vectors[at * N + lane] : 0.0;
  __syncwarp();
  double image = 0.0;
#pragma unroll
  for (int i = 0; i < N; ++i) image = fma(used ? from[i * N + lane] : 0.0, rows[group][i], image);
  if (used) images[at * N + lane] = image;
}
#endif

#ifdef GAUSSIAN_GAIN
extern "C" __global__ void __launch_bounds__(32 * WARPS)
gaussian_gain(const double* __restrict__ matrices, const double* __restrict__ vectors,
              double* __restrict__ gains, long long count) {
  __shared__ __align__(16) double rows[GROUPS][2 * (W + 2) + 2];
  int lane = threadIdx.x % W, group = threadIdx.x / W;
  long long at = (long long)blockIdx.x * GROUPS + group;
  bool used = at < count && lane < N;
  const double* from = matrices + (used ? at : 0) * N * N;
  double a[W], vector = used ? vectors[at * N + lane] : 0.0, image = 0.0;
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = double(i == lane) + (used ? from[i * N + lane] : 0.0);
  double pivot = invert<N, W>(a, lane, rows[group]);
  rows[group][lane] = vector;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < N; ++i) image = fma(a[i], rows[group][i], image);
  double gain = group_sum(vector * image - log(pivot));
  if (used && lane == 0) gains[at] = gain;
}
#endif

#if defined(CHOLESKY) || defined(INVERSE_ROOT)
// Elimination from above: the first rows of what is left are those of D Lᵀ for the L D Lᵀ of a
// matrix, where L has a diagonal of ones. As everything below stays symmetric, a row is a column.
// In the place of what is eliminated comes L⁻¹.
__device__ __forceinline__ void eliminate(double (&a)[W], double* rows, double* pivots, int lane) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    double* row = rows + k % 2 * (W + 2);
    row[lane] = a[k];
    __syncwarp();
    bool own = lane == k;
    double inverse = 1.0 / row[k], step = own ? 1.0 : a[k];
    if (own) pivots[k] = row[k];
#pragma unroll
    for (int i = k + 1; i < N; ++i) a[i] = fma(-row[i] * inverse, step, own ? 0.0 : a[i]);
#ifdef INVERSE_ROOT
    a[k] = step;
#endif
  }
  __syncwarp();
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
#ifdef CHOLESKY
cholesky(const double* __restrict__ matrices, double* __restrict__ factors, long long count) {
#else
inverse_root(const double* __restrict__ matrices, double* __restrict__ roots,
             double* __restrict__ log_determinants, long long count) {
#endif
  __shared__ __align__(16) double rows[GROUPS][2 * (W + 2) + 2], pivots[GROUPS][W];
  int lane = threadIdx.x % W, group = threadIdx.x / W;
  long long at = (long long)blockIdx.x * GROUPS + group;
  bool used = at < count && lane < N;
  const double* from = matrices + (used ? at : 0) * N * N;
  double a[W];
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = used ? from[i * N + lane] : double(i == lane);
  eliminate(a, rows[group], pivots[group], lane);
#ifdef CHOLESKY
  // Row k of D Lᵀ, of which lane j has a number, is column k of L √D times √D.
  if (!used) return;
#pragma unroll
  for (int k = 0; k < N; ++k)
    factors[at * N * N + lane * N + k] = k <= lane ? a[k] * rsqrt(pivots[group][k]) : 0.0;
#else
  double log_determinant = group_sum(lane < N ? log(pivots[group][lane]) : 0.0);
  if (!used) return;
  if (lane == 0) log_determinants[at] = log_determinant;
  // Row i of D^-½ L⁻¹ is column i of the root.
#pragma unroll
  for (int i = 0; i < N; ++i)
    roots[at * N * N + lane * N + i] = i >= lane ? a[i] * rsqrt(pivots[group][i]) : 0.0;
#endif
}
#endif

// --- Eigenvalues -------------------------------------------------------------------------------

#ifdef EIGH
// Householder's reflections to a tridiagonal matrix, then QL iterations with implicit shifts (tred2
// and tql2 of EISPACK). A warp has one matrix: lane j a column of A and a row of V, both in shared
// memory, and the numbers d_j and e_j of the tridiagonal matrix.

constexpr int EIGH_WARPS = 2, ODD = N | 1, MAX_ITERATIONS = 40;
constexpr double EPSILON = 1.1e-16, NOTHING = 1e-18;  // of neighbours' size, and of all

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int gap = 16; gap; gap /= 2) x += __shfl_xor_sync(ALL, x, gap);
  return x;
}

extern "C" __global__ void __launch_bounds__(32 * EIGH_WARPS)
eigh(const double* __restrict__ matrices, double* __restrict__ values, double* __restrict__ vectors,
     long long count) {
  __shared__ double shared[EIGH_WARPS][2][N * ODD], rows[EIGH_WARPS][2][32];
  __shared__ int ranks[EIGH_WARPS][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long at = (long long)blockIdx.x * EIGH_WARPS + warp;
  if (at >= count) return;
  double *a = shared[warp][0], *v = shared[warp][1], *row = rows[warp][0], *other = rows[warp][1];
  const double* from = matrices + at * N * N;
  bool used = lane < N;
  // Symmetric, and of about size 1, so that squares are numbers.
  double largest = 0.0;
  for (int i = 0; i < N && used; ++i) {
    double x = 0.5 * (from[i * N + lane] + from[lane * N + i]);
    a[i * ODD + lane] = x;
    largest = fmax(largest, fabs(x));
  }
#pragma unroll
  for (int gap = 16; gap; gap /= 2) largest = fmax(largest, __shfl_xor_sync(ALL, largest, gap));
  int size = largest > 0.0 && largest < 1e300 ? ilogb(largest) : 0;
  double scale = scalbn(1.0, -size);
  for (int i = 0; i < N && used; ++i) a[i * ODD + lane] *= scale, v[lane * ODD + i] = double(i == lane);
  double e = 0.0;
  __syncwarp();
  for (int k = 0; k + 2 < N; ++k) {
    bool inside = lane > k && used;
    double x = inside ? a[k * ODD + lane] : 0.0, lead = __shfl_sync(ALL, x, k + 1);
    double tail = warp_sum(lane > k + 1 ? x * x : 0.0);
    if (!(tail > 0.0)) {
      e = lane == k ? lead : e;
      continue;
    }
    double norm = sqrt(lead * lead + tail), alpha = lead > 0.0 ? -norm : norm;
    double inverse = 1.0 / (norm * norm - lead * alpha), product = 0.0, turned = 0.0;
    double own = lane == k + 1 ? lead - alpha : x;
    e = lane == k ? alpha : e;
    row[lane] = own;
    __syncwarp();
    for (int i = k + 1; i < N && used; ++i) {
      product = fma(a[i * ODD + lane], row[i], product);
      turned = fma(v[lane * ODD + i], row[i], turned);
    }
    product = inside ? product * inverse : 0.0;
    turned *= inverse;
    double rest = product - 0.5 * inverse * warp_sum(own * product) * own;
    other[lane] = rest;
    __syncwarp();
    for (int i = k + 1; i < N && used; ++i) {
      if (inside) a[i * ODD + lane] -= row[i] * rest + other[i] * own;
      v[lane * ODD + i] = fma(-turned, row[i], v[lane * ODD + i]);
    }
    __syncwarp();
  }
  double d = used ? a[lane * ODD + lane] : 0.0;
  if (N > 1 && lane == N - 2) e = a[lane * ODD + lane + 1];
  double least = NOTHING * sqrt(warp_sum(d * d + 2.0 * e * e));
  for (int l = 0; l + 1 < N; ++l) {
    for (int iteration = 0; iteration < MAX_ITERATIONS; ++iteration) {
      double next = __shfl_down_sync(ALL, d, 1);
      bool split = lane >= N - 1 || fabs(e) <= fmax(EPSILON * (fabs(d) + fabs(next)), least);
      int m = __ffs(__ballot_sync(ALL, split && lane >= l)) - 1;
      if (m == l) break;
      double dl = __shfl_sync(ALL, d, l), el = __shfl_sync(ALL, e, l);
      double g = (__shfl_sync(ALL, d, l + 1) - dl) / (2.0 * el);
      double r = sqrt(g * g + 1.0);
      double above = __shfl_sync(ALL, d, m);
      g = above - dl + el / (g + copysign(r, g));
      double s = 1.0, c = 1.0, p = 0.0, up = used ? v[lane * ODD + m] : 0.0;
      double ei = __shfl_sync(ALL, e, m - 1), di = __shfl_sync(ALL, d, m - 1);
      int i = m - 1;
      for (; i >= l; --i) {
        int before = i > 0 ? i - 1 : 0;
        double coming = __shfl_sync(ALL, e, before), diagonal = __shfl_sync(ALL, d, before);
        double f = s * ei, b = c * ei, square = f * f + g * g;
        double inverse = rsqrt(square);
        r = square > 0.0 ? square * inverse : 0.0;
        e = lane == i + 1 ? r : e;
        if (!(square > 0.0)) break;
        s = f * inverse, c = g * inverse;
        g = above - p;
        r = (di - g) * s + 2.0 * c * b;
        p = s * r;
        d = lane == i + 1 ? g + p : d;
        g = c * r - b;
        if (used) {
          double own = v[lane * ODD + i];
          v[lane * ODD + i + 1] = s * own + c * up;
          up = c * own - s * up;
        }
        above = di, di = diagonal, ei = coming;
      }
      if (used) v[lane * ODD + i + 1] = up;
      e = lane == m ? 0.0 : e;
      if (i >= l) {  // it came apart on the way
        d = lane == i + 1 ? d - p : d;
        continue;
      }
      d = lane == l ? d - p : d;
      e = lane == l ? g : e;
    }
  }
  // The smallest comes first.
  row[lane] = d;
  __syncwarp();
  int rank = 0;
  for (int i = 0; i < N; ++i) rank += row[i] < d || (row[i] == d && i < lane);
  ranks[warp][lane] = rank;
  __syncwarp();
  if (!used) return;
  values[at * N + rank] = scalbn(d, size);
  for (int i = 0; i < N; ++i) vectors[(at * N + lane) * N + ranks[warp][i]] = v[lane * ODD + i];
}
#endif

// --- What tasks tell, under a population of theirs -----------------------------------------------

// A warp has one task, or two, at a time. Block (b, s) has tasks of seed s.

#ifdef WHITENED_POSTERIORS
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
whitened_posteriors(const double* __restrict__ root, const double* __restrict__ grams,
                    const double* __restrict__ surprises, const double* __restrict__ precisions,
                    const double* __restrict__ limit, double* __restrict__ spreads,
                    double* __restrict__ means, double* __restrict__ inaccurate, long long tasks) {
  constexpr int SIDE = 8 * TILES;
  __shared__ __align__(16) double around[SIDE * STRIDE], matrix[WARPS][SIDE * STRIDE], rows[WARPS][70];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4;
  long long seed = blockIdx.y;
  for (int at = threadIdx.x; at < SIDE * SIDE; at += 32 * WARPS)
    around[at / SIDE * STRIDE + at % SIDE] = entry<N, N>(root + seed * N * N, at / SIDE, at % SIDE);
  __syncthreads();
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    const double* gram = grams + at * N * N;
    double precision = precisions[at];
    rows[warp][lane] = lane < N ? surprises[at * N + lane] : 0.0;
    {
      double2 half[TILES][TILES], inner[TILES][TILES];  // F G and F G F
      clear(half), clear(inner);
#pragma unroll
      for (int k = 0; k < STEPS; ++k) {
        double left[TILES];
#pragma unroll
        for (int m = 0; m < TILES; ++m) left[m] = around[(8 * m + r) * STRIDE + 4 * k + q];
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
          double right = precision * entry<N, N>(gram, 4 * k + q, 8 * n + r);
#pragma unroll
          for (int m = 0; m < TILES; ++m) multiply_add(half[m][n], left[m], right);
        }
      }
#pragma unroll
      for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
          double2 right = *reinterpret_cast<double2*>(around + (8 * n + r) * STRIDE + 8 * t + 2 * q);
#pragma unroll
          for (int m = 0; m < TILES; ++m) {
            multiply_add(inner[m][n], half[m][t].x, right.x);
            multiply_add(inner[m][n], half[m][t].y, right.y);
          }
        }
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int n = 0; n < TILES; ++n)
          *reinterpret_cast<double2*>(matrix[warp] + (8 * m + r) * STRIDE + 8 * n + 2 * q) = inner[m][n];
    }
    __syncwarp();
    bool accurate = !__any_sync(ALL, lane < N && matrix[warp][lane * STRIDE + lane] > limit[0]);
    if (lane == 0) inaccurate[at] = !accurate;
    double a[32], turned = 0.0, mean = 0.0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      double own = lane < N ? matrix[warp][i * STRIDE + lane] : 0.0;
      a[i] = double(i == lane) + (accurate ? own : 0.0);
      turned = fma(lane < N ? around[i * STRIDE + lane] : 0.0, rows[warp][i], turned);
    }
    __syncwarp();
    invert<N>(a, lane, rows[warp]);
    rows[warp][lane] = accurate ? turned : 0.0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; ++i) mean = fma(a[i], rows[warp][i], mean);
    if (lane < N) {
      means[at * N + lane] = mean;
#pragma unroll
      for (int i = 0; i < N; ++i) spreads[at * N * N + i * N + lane] = a[i];
    }
    __syncwarp();
  }
}
#endif

#ifdef RIDGE_SOLVE
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
ridge_solve(const double* __restrict__ grams, const double* __restrict__ moments,
            const double* __restrict__ precisions, const double* __restrict__ spread,
            double* __restrict__ solved, double* __restrict__ solved_moments, long long tasks) {
  constexpr int SIDE = 8 * TILES;
  __shared__ __align__(16) double matrix[WARPS][SIDE * STRIDE], rows[WARPS][70];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4;
  long long seed = blockIdx.y;
  double own = spread[seed];
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    const double* gram = grams + at * N * N;
    double precision = precisions[at], mean = 0.0;
    {
      double a[32];
#pragma unroll
      for (int i = 0; i < N; ++i)
        a[i] = fma(own, lane < N ? precision * gram[i * N + lane] : 0.0, double(i == lane));
      invert<N>(a, lane, rows[warp]);
      rows[warp][lane] = lane < N ? precision * moments[at * N + lane] : 0.0;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < SIDE; ++i) {
        if (i < N) mean = fma(a[i], rows[warp][i], mean);
        if (lane < SIDE) matrix[warp][i * STRIDE + lane] = i < N ? a[i] : 0.0;
      }
    }
    if (lane < N) solved_moments[at * N + lane] = mean;
    __syncwarp();
    double2 product[TILES][TILES];
    clear(product);
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      double left[TILES];
#pragma unroll
      for (int m = 0; m < TILES; ++m) left[m] = matrix[warp][(8 * m + r) * STRIDE + 4 * k + q];
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        double right = precision * entry<N, N>(gram, 4 * k + q, 8 * n + r);
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(product[m][n], left[m], right);
      }
    }
    store(solved + at * N * N, product, r, q);
    __syncwarp();
  }
}
#endif

// --- Along a few directions ----------------------------------------------------------------------

#if defined(PROJECTED_INVERSE) || defined(WOODBURY)
static_assert(R <= 16, "half a warp has each of the smaller matrices");
constexpr int ACROSS = (R + 7) / 8, SMALL = 18;  // and the columns between rows of the smaller ones

// The directions W, as lanes need them.
struct Directions {
  double steps[STEPS][ACROSS];      // W[4k + q][8c + r]
  double pairs[2 * TILES][ACROSS];  // W[8t + 2q + s][8c + r]

  __device__ __forceinline__ Directions(const double* w, int r, int q) {
#pragma unroll
    for (int c = 0; c < ACROSS; ++c) {
#pragma unroll
      for (int k = 0; k < STEPS; ++k) steps[k][c] = entry<N, R>(w, 4 * k + q, 8 * c + r);
#pragma unroll
      for (int t = 0; t < 2 * TILES; ++t)
        pairs[t][c] = entry<N, R>(w, t / 2 * 8 + 2 * q + t % 2, 8 * c + r);
    }
  }
};

// Wᵀ A W into shared memory.
__device__ __forceinline__ void project(const double* matrix, const Directions& w, double* to, int r, int q) {
  double2 half[ACROSS][TILES], inner[ACROSS][ACROSS];  // Wᵀ A and Wᵀ A W
  clear(half), clear(inner);
#pragma unroll
  for (int k = 0; k < STEPS; ++k)
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      double right = entry<N, N>(matrix, 4 * k + q, 8 * n + r);
#pragma unroll
      for (int m = 0; m < ACROSS; ++m) multiply_add(half[m][n], w.steps[k][m], right);
    }
#pragma unroll
  for (int t = 0; t < 2 * TILES; ++t)
#pragma unroll
    for (int n = 0; n < ACROSS; ++n)
#pragma unroll
      for (int m = 0; m < ACROSS; ++m)
        multiply_add(inner[m][n], part(half[m][t / 2], t % 2), w.pairs[t][n]);
#pragma unroll
  for (int m = 0; m < ACROSS; ++m)
#pragma unroll
    for (int n = 0; n < ACROSS; ++n)
      *reinterpret_cast<double2*>(to + (8 * m + r) * SMALL + 8 * n + 2 * q) = inner[m][n];
}

// Invert what is in shared memory, with more on its diagonal; half a warp has one of two matrices.
__device__ __forceinline__ void invert_small(double* matrix, double more, double* rows, int column) {
  double m[16];
#pragma unroll
  for (int c = 0; c < R; ++c) m[c] = (column < R ? matrix[c * SMALL + column] : 0.0) + (c == column ? more : 0.0);
  __syncwarp();
  invert<R>(m, column, rows);
#pragma unroll
  for (int c = 0; c < 8 * ACROSS; ++c) matrix[c * SMALL + column] = c < R && column < R ? m[c] : 0.0;
  __syncwarp();
}

// Write an inverse.
__device__ __forceinline__ void store_small(double* to, const double* matrix, int lane) {
  for (int at = lane; at < R * R; at += 32) to[at] = matrix[at / R * SMALL + at % R];
}
#endif

#ifdef PROJECTED_INVERSE
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
projected_inverse(const double* __restrict__ matrices, const double* __restrict__ directions,
                  const double* __restrict__ diagonals, double* __restrict__ inverses, long long tasks) {
  __shared__ __align__(16) double small[WARPS][2][16 * SMALL], rows[WARPS][2][38];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4;
  int half = lane / 16, column = lane % 16;
  long long seed = blockIdx.y;
  Directions w(directions + seed * N * R, r, q);
  for (long long pair = blockIdx.x * WARPS + warp; 2 * pair < tasks; pair += gridDim.x * WARPS) {
    long long first = seed * tasks + 2 * pair;
    int many = 2 * pair + 1 < tasks ? 2 : 1;
    for (int h = 0; h < many; ++h) project(matrices + (first + h) * N * N, w, small[warp][h], r, q);
    __syncwarp();
    long long own = first + (half < many ? half : 0);
    double more = column < R ? diagonals[own * R + column] : 1.0;
    invert_small(small[warp][half < many ? half : 0], more, rows[warp][half], column);
    for (int h = 0; h < many; ++h) store_small(inverses + (first + h) * R * R, small[warp][h], lane);
    __syncwarp();
  }
}
#endif

#ifdef WOODBURY
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
woodbury(const double* __restrict__ matrices, const double* __restrict__ directions,
         const double* __restrict__ vectors, double* __restrict__ updated, double* __restrict__ images,
         double* __restrict__ inverses, long long tasks) {
  __shared__ __align__(16) double small[WARPS][2][16 * SMALL], rows[WARPS][2][38];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4;
  int half = lane / 16, column = lane % 16;
  long long seed = blockIdx.y;
  const double* given = directions + seed * N * R;
  Directions w(given, r, q);
  for (long long pair = blockIdx.x * WARPS + warp; 2 * pair < tasks; pair += gridDim.x * WARPS) {
    long long first = seed * tasks + 2 * pair;
    int many = 2 * pair + 1 < tasks ? 2 : 1;
    for (int h = 0; h < many; ++h) project(matrices + (first + h) * N * N, w, small[warp][h], r, q);
    __syncwarp();
    invert_small(small[warp][half < many ? half : 0], 1.0, rows[warp][half], column);
    for (int h = 0; h < many; ++h) {
      long long at = first + h;
      const double *matrix = matrices + at * N * N, *m = small[warp][h];
      store_small(inverses + at * R * R, m, lane);
      double* turned = rows[warp][h];  // Wᵀ v
      if (lane < 16) {
        double sum = 0.0;
        for (int k = 0; k < N; ++k) sum = fma(entry<N, R>(given, k, lane), vectors[at * N + k], sum);
        turned[lane] = sum;
      }
      __syncwarp();
      double2 x[TILES][ACROSS], xm[TILES][ACROSS];  // A W and A W M
      clear(x), clear(xm);
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
          double left = entry<N, N>(matrix, 4 * k + q, 8 * t + r);
#pragma unroll
          for (int n = 0; n < ACROSS; ++n) multiply_add(x[t][n], left, w.steps[k][n]);
        }
#pragma unroll
      for (int k = 0; k < 2 * ACROSS; ++k)
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) {
          double right = m[(k / 2 * 8 + 2 * q + k % 2) * SMALL + 8 * n + r];
#pragma unroll
          for (int t = 0; t < TILES; ++t) multiply_add(xm[t][n], part(x[t][k / 2], k % 2), right);
        }
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
        double taken = 0.0;
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) {
          double2 two = *reinterpret_cast<double2*>(turned + 8 * n + 2 * q);
          taken = fma(xm[t][n].x, two.x, fma(xm[t][n].y, two.y, taken));
        }
        taken += __shfl_xor_sync(ALL, taken, 1);
        taken += __shfl_xor_sync(ALL, taken, 2);
        if (q == 0 && 8 * t + r < N) images[at * N + 8 * t + r] = vectors[at * N + 8 * t + r] - taken;
      }
      double2 left[TILES][TILES];
#pragma unroll
      for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
          left[t][n].x = entry<N, N>(matrix, 8 * t + r, 8 * n + 2 * q);
          left[t][n].y = entry<N, N>(matrix, 8 * t + r, 8 * n + 2 * q + 1);
#pragma unroll
          for (int k = 0; k < 2 * ACROSS; ++k)
            multiply_add(left[t][n], -part(xm[t][k / 2], k % 2), part(x[n][k / 2], k % 2));
        }
      store(updated + at * N * N, left, r, q);
    }
    __syncwarp();
  }
}
#endif

#ifdef SUM_OF_PRODUCTS
extern "C" __global__ void __launch_bounds__(32 * WARPS, R <= 16 ? 3 : 2)
sum_of_products(const double* __restrict__ matrices, const double* __restrict__ middle,
                const double* __restrict__ others, const double* __restrict__ weights,
                double* __restrict__ total, long long tasks) {
  constexpr int ACROSS = (R + 7) / 8, WIDTH = R <= 16 ? 20 : 36;
  __shared__ __align__(16) double x[4 * STEPS * WIDTH], sums[N * R];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4;
  long long seed = blockIdx.x;
  for (int at = threadIdx.x; at < 32 * STEPS * ACROSS; at += 32 * WARPS)
    x[at / (8 * ACROSS) * WIDTH + at % (8 * ACROSS)] =
        entry<N, R>(middle + seed * N * R, at / (8 * ACROSS), at % (8 * ACROSS));
  __syncthreads();
  double2 sum[TILES][ACROSS];
  clear(sum);
  for (long long task = warp; task < tasks; task += WARPS) {
    long long at = seed * tasks + task;
    const double *matrix = matrices + at * N * N, *other = others + at * R * R;
    double weight = weights[at];
    double2 y[TILES][ACROSS];
    clear(y);
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      double left[TILES];
#pragma unroll
      for (int m = 0; m < TILES; ++m) left[m] = entry<N, N>(matrix, 4 * k + q, 8 * m + r);
#pragma unroll
      for (int n = 0; n < ACROSS; ++n) {
        double right = x[(4 * k + q) * WIDTH + 8 * n + r];
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(y[m][n], left[m], right);
      }
    }
#pragma unroll
    for (int k = 0; k < 2 * ACROSS; ++k)
#pragma unroll
      for (int n = 0; n < ACROSS; ++n) {
        double right = weight * entry<R, R>(other, k / 2 * 8 + 2 * q + k % 2, 8 * n + r);
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(sum[m][n], part(y[m][k / 2], k % 2), right);
      }
  }
  // The warps' sums, always in the same order.
  for (int turn = 0; turn < WARPS; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int n = 0; n < ACROSS; ++n)
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            int row = 8 * m + r, column = 8 * n + 2 * q + s, at = row * R + column;
            if (row < N && column < R) sums[at] = part(sum[m][n], s) + (turn ? sums[at] : 0.0);
          }
    }
    __syncthreads();
  }
  for (int at = threadIdx.x; at < N * R; at += 32 * WARPS) total[seed * N * R + at] = sums[at];
}
#endif
