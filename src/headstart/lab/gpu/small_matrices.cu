// Many small matrices in double precision: the functions of headstart.small_matrices, on the chip.
//
// A matrix has N ≤ 32 rows and belongs to W lanes, all of a warp or, where N ≤ 16, half of one. Lane
// j holds column j in registers, which for a symmetric matrix is row j as well. What all lanes need
// of a matrix is read from shared memory, two numbers at a time. R is the number of columns of what
// N × N matrices are multiplied by.

#define ALL 0xffffffffu

__host__ __device__ constexpr int even(int size) { return size + size % 2; }

constexpr int WARPS = 4;

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

// y += M x for a symmetric matrix M of rows that are `stride` apart, in shared memory.
template <int SIZE, int LANES>
__device__ __forceinline__ void add_product(double (&y)[LANES], const double* matrix, int stride,
                                            const double (&x)[LANES]) {
#pragma unroll
  for (int k = 0; k < SIZE; ++k) {
#pragma unroll
    for (int i = 0; i < SIZE; i += 2) {
      double2 two = *reinterpret_cast<const double2*>(matrix + k * stride + i);
      y[i] = fma(two.x, x[k], y[i]);
      if (i + 1 < SIZE) y[i + 1] = fma(two.y, x[k], y[i + 1]);
    }
  }
}

// --- A matrix at a time --------------------------------------------------------------------------

constexpr int W = N <= 16 ? 16 : 32, GROUPS = WARPS * 32 / W;

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
// Jacobi's method: in each round W/2 pairs of rows and columns are rotated at once.
//
// Rows and columns are numbered as the elements of a field of W elements. In round k the pairs are
// those that differ by αᵏ, for an α whose powers are all of them but 0. Register i then holds row
// αᵏ i, so that the pairs of rows are in registers 2i and 2i + 1 in every round, and the registers
// are exchanged in the same way after each.

constexpr int FIELD = W == 32 ? 0b100101 : 0b10011;  // x⁵ + x² + 1, x⁴ + x + 1: α = x
__host__ __device__ constexpr int times_alpha(int i) { return 2 * i < W ? 2 * i : (2 * i) ^ FIELD; }
constexpr double TOLERANCE = 2.5e-29;  // of the squares outside the diagonal, as a share of all
constexpr int MAX_SWEEPS = 20;

// a[at], where registers cannot be indexed: a tree of choices.
__device__ __forceinline__ double chosen(const double (&a)[W], int at) {
  double part[W / 2];
#pragma unroll
  for (int i = 0; i < W / 2; ++i) part[i] = at & (W / 2) ? a[i + W / 2] : a[i];
#pragma unroll
  for (int size = W / 4; size; size /= 2)
#pragma unroll
    for (int i = 0; i < W / 4; ++i)
      if (i < size) part[i] = at & size ? part[i + size] : part[i];
  return part[0];
}

__device__ __forceinline__ void exchange(double (&a)[W]) {
  double before[W];
#pragma unroll
  for (int i = 0; i < W; ++i) before[i] = a[i];
#pragma unroll
  for (int i = 0; i < W; ++i) a[i] = before[times_alpha(i)];
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
eigh(const double* __restrict__ matrices, double* __restrict__ values, double* __restrict__ vectors,
     long long count) {
  __shared__ __align__(16) double2 turns[GROUPS][W + 1];
  int lane = threadIdx.x % W, group = threadIdx.x / W;
  long long at = (long long)blockIdx.x * GROUPS + group;
  bool used = at < count && lane < N;
  const double* from = matrices + (used ? at : 0) * N * N;
  double a[W], v[W], diagonal = 0.0;  // column of A and row of V
#pragma unroll
  for (int i = 0; i < W; ++i) {
    a[i] = used && i < N ? 0.5 * (from[i * N + lane] + from[lane * N + i]) : 0.0;
    v[i] = double(i == lane);
  }
  for (int sweep = 0; sweep < MAX_SWEEPS; ++sweep) {
    double outside = 0.0, all = 0.0;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      all += a[i] * a[i];
      outside += i == lane ? 0.0 : a[i] * a[i];
      diagonal = i == lane ? a[i] : diagonal;
    }
    // All groups of a warp go on together; what is not finite stops.
    if (!__any_sync(ALL, group_sum(outside) > TOLERANCE * group_sum(all))) break;
    int mask = 1, place = lane;  // αᵏ, and the register that holds row `lane`
#pragma unroll 1
    for (int k = 1; k < W; ++k) {
      bool first = !(place & 1);
      double apq = chosen(a, place ^ 1);
      double swapped = __shfl_xor_sync(ALL, apq, mask);
      double other = __shfl_xor_sync(ALL, diagonal, mask);
      apq = first ? apq : swapped;
      double t = 0.0;
      if (apq != 0.0) {
        double tau = (first ? other - diagonal : diagonal - other) / (2.0 * apq);
        double size = fabs(tau);
        t = copysign(size > 1e150 ? 0.5 / size : 1.0 / (size + sqrt(1.0 + size * size)), tau);
      }
      double c = rsqrt(1.0 + t * t), s = t * c;
      diagonal += (first ? -t : t) * apq;
      if (first) turns[group][place >> 1] = make_double2(c, s);
      __syncwarp();
      double across = first ? -s : s;
#pragma unroll
      for (int i = 0; i < W; ++i) a[i] = c * a[i] + across * __shfl_xor_sync(ALL, a[i], mask);
#pragma unroll
      for (int i = 0; i < W; i += 2) {
        double2 turn = turns[group][i / 2];
        double p = a[i], q = a[i + 1];
        a[i] = turn.x * p - turn.y * q;
        a[i + 1] = turn.y * p + turn.x * q;
        p = v[i], q = v[i + 1];
        v[i] = turn.x * p - turn.y * q;
        v[i + 1] = turn.y * p + turn.x * q;
      }
      exchange(a);
      exchange(v);
      mask = times_alpha(mask);
      place = place & 1 ? (place ^ FIELD) >> 1 : place >> 1;
      __syncwarp();
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) diagonal = i == lane ? a[i] : diagonal;
  // The smallest comes first; what fills up the matrix comes last.
  double* shown = reinterpret_cast<double*>(turns[group]);
  int* ranks = reinterpret_cast<int*>(shown + W);
  shown[lane] = lane < N ? diagonal : __longlong_as_double(0x7ff0000000000000ll);
  __syncwarp();
  int rank = 0;
#pragma unroll
  for (int i = 0; i < W; ++i)
    rank += shown[i] < shown[lane] || (shown[i] == shown[lane] && i < lane);
  ranks[lane] = rank < N ? rank : lane;
  __syncwarp();
  if (!used) return;
  values[at * N + ranks[lane]] = diagonal;
#pragma unroll
  for (int i = 0; i < N; ++i) vectors[at * N * N + lane * N + ranks[i]] = v[i];
}
#endif

// --- What tasks tell, under a population of theirs -----------------------------------------------

// A warp has one task at a time. Block (b, s) has tasks b, b + blocks, … of seed s.

#ifdef WHITENED_POSTERIORS
extern "C" __global__ void __launch_bounds__(32 * WARPS)
whitened_posteriors(const double* __restrict__ root, const double* __restrict__ grams,
                    const double* __restrict__ surprises, const double* __restrict__ precisions,
                    const double* __restrict__ limit, double* __restrict__ spreads,
                    double* __restrict__ means, double* __restrict__ inaccurate, long long tasks) {
  constexpr int P = even(N);
  __shared__ __align__(16) double around[N][P], matrix[WARPS][N][P], rows[WARPS][2 * 34 + 2];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long seed = blockIdx.y;
  for (int at = threadIdx.x; at < N * N; at += 32 * WARPS)
    around[at / N][at % N] = root[seed * N * N + at];
  __syncthreads();
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    double precision = precisions[at], given = lane < N ? surprises[at * N + lane] : 0.0;
    for (int e = lane; e < N * N; e += 32) matrix[warp][e / N][e % N] = precision * grams[at * N * N + e];
    rows[warp][lane] = given;
    __syncwarp();
    double a[32], product[32], f[32], peak = 0.0, turned = 0.0;
#pragma unroll
    for (int i = 0; i < N; ++i) f[i] = lane < N ? around[i][lane] : 0.0, product[i] = 0.0;
    add_product<N>(product, &matrix[warp][0][0], P, f);
#pragma unroll
    for (int i = 0; i < N; ++i) peak = fma(f[i], product[i], peak), turned = fma(f[i], rows[warp][i], turned);
    bool accurate = !__any_sync(ALL, peak > limit[0]);
    if (lane == 0) inaccurate[at] = !accurate;
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = double(i == lane);
    __syncwarp();
    if (accurate) add_product<N>(a, &around[0][0], P, product);
    invert<N>(a, lane, rows[warp]);
    rows[warp][lane] = accurate ? turned : 0.0;
    __syncwarp();
    double mean = 0.0;
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
extern "C" __global__ void __launch_bounds__(32 * WARPS)
ridge_solve(const double* __restrict__ grams, const double* __restrict__ moments,
            const double* __restrict__ precisions, const double* __restrict__ spread,
            double* __restrict__ solved, double* __restrict__ solved_moments, long long tasks) {
  constexpr int P = even(N);
  __shared__ __align__(16) double matrix[WARPS][N][P], rows[WARPS][2 * 34 + 2];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long seed = blockIdx.y;
  double own = spread[seed];
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    double precision = precisions[at], moment = lane < N ? precision * moments[at * N + lane] : 0.0;
    double a[32], gram[32];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      gram[i] = lane < N ? precision * grams[at * N * N + i * N + lane] : 0.0;
      a[i] = fma(own, gram[i], double(i == lane));
    }
    invert<N>(a, lane, rows[warp]);
    rows[warp][lane] = moment;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (lane < N) matrix[warp][i][lane] = a[i];
    __syncwarp();
    double mean = 0.0;
#pragma unroll
    for (int i = 0; i < N; ++i) mean = fma(a[i], rows[warp][i], mean), a[i] = 0.0;
    add_product<N>(a, &matrix[warp][0][0], P, gram);
    if (lane < N) {
      solved_moments[at * N + lane] = mean;
#pragma unroll
      for (int i = 0; i < N; ++i) solved[at * N * N + i * N + lane] = a[i];
    }
    __syncwarp();
  }
}
#endif

// --- Along a few directions ----------------------------------------------------------------------

#if defined(PROJECTED_INVERSE) || defined(WOODBURY)
static_assert(R <= 16, "half a warp has the smaller matrices");
constexpr int P = even(R);

// Row `lane` of A W, from column `lane` of a symmetric A; W is in shared memory.
__device__ __forceinline__ void multiply_row(double (&y)[16], const double (&a)[32], const double (&w)[N][P]) {
#pragma unroll
  for (int c = 0; c < R; ++c) y[c] = 0.0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
#pragma unroll
    for (int c = 0; c < R; c += 2) {
      double2 two = *reinterpret_cast<const double2*>(&w[k][c]);
      y[c] = fma(a[k], two.x, y[c]);
      if (c + 1 < R) y[c + 1] = fma(a[k], two.y, y[c + 1]);
    }
  }
}

// Column `lane % 16` of (Wᵀ Y + diag)⁻¹, with the rows of Y in all lanes; both halves of a warp have it.
__device__ __forceinline__ void invert_projection(double (&m)[16], const double (&y)[16],
                                                  const double (&w)[N][P], double diagonal,
                                                  double (&shown)[N][P], double* rows, int lane) {
  int column = lane % 16;
#pragma unroll
  for (int c = 0; c < R; ++c)
    if (lane < N) shown[lane][c] = y[c];
  __syncwarp();
#pragma unroll
  for (int c = 0; c < R; ++c) m[c] = c == column ? diagonal : 0.0;
  for (int k = 0; k < N; ++k) {
    double own = column < R ? shown[k][column] : 0.0;
#pragma unroll
    for (int c = 0; c < R; c += 2) {
      double2 two = *reinterpret_cast<const double2*>(&w[k][c]);
      m[c] = fma(two.x, own, m[c]);
      if (c + 1 < R) m[c + 1] = fma(two.y, own, m[c + 1]);
    }
  }
  __syncwarp();
  invert<R, 16>(m, column, rows + lane / 16 * 38);
}
#endif

#ifdef PROJECTED_INVERSE
extern "C" __global__ void __launch_bounds__(32 * WARPS)
projected_inverse(const double* __restrict__ matrices, const double* __restrict__ directions,
                  const double* __restrict__ diagonals, double* __restrict__ inverses, long long tasks) {
  __shared__ __align__(16) double w[N][P], shown[WARPS][N][P], rows[WARPS][2 * 38];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long seed = blockIdx.y;
  for (int at = threadIdx.x; at < N * R; at += 32 * WARPS)
    w[at / R][at % R] = directions[seed * N * R + at];
  __syncthreads();
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    double a[32], y[16], m[16];
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = lane < N ? matrices[at * N * N + i * N + lane] : 0.0;
    multiply_row(y, a, w);
    double diagonal = lane % 16 < R ? diagonals[at * R + lane % 16] : 1.0;
    invert_projection(m, y, w, diagonal, shown[warp], rows[warp], lane);
    if (lane < R) {
#pragma unroll
      for (int c = 0; c < R; ++c) inverses[at * R * R + c * R + lane] = m[c];
    }
    __syncwarp();
  }
}
#endif

#ifdef WOODBURY
extern "C" __global__ void __launch_bounds__(32 * WARPS)
woodbury(const double* __restrict__ matrices, const double* __restrict__ directions,
         const double* __restrict__ vectors, double* __restrict__ updated, double* __restrict__ images,
         double* __restrict__ inverses, long long tasks) {
  __shared__ __align__(16) double w[N][P], shown[WARPS][N][P], inner[WARPS][R][P], rows[WARPS][2 * 38];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long seed = blockIdx.y;
  for (int at = threadIdx.x; at < N * R; at += 32 * WARPS)
    w[at / R][at % R] = directions[seed * N * R + at];
  __syncthreads();
  for (long long task = blockIdx.x * WARPS + warp; task < tasks; task += gridDim.x * WARPS) {
    long long at = seed * tasks + task;
    double a[32], y[16], m[16], vector = lane < N ? vectors[at * N + lane] : 0.0;
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = lane < N ? matrices[at * N * N + i * N + lane] : 0.0;
    multiply_row(y, a, w);
    invert_projection(m, y, w, 1.0, shown[warp], rows[warp], lane);
    if (lane < R) {
#pragma unroll
      for (int c = 0; c < R; ++c) inverses[at * R * R + c * R + lane] = inner[warp][c][lane] = m[c];
    }
    rows[warp][lane] = vector;
    __syncwarp();
    // Wᵀ b in lane c, then in all.
    double turned = 0.0;
    for (int k = 0; k < N; ++k) turned = fma(lane < R ? w[k][lane] : 0.0, rows[warp][k], turned);
    __syncwarp();
    if (lane < R) rows[warp][lane] = turned;
    // Row `lane` of X M, which every lane needs of all.
    double xm[16];
#pragma unroll
    for (int c = 0; c < R; ++c) xm[c] = 0.0;
#pragma unroll
    for (int k = 0; k < R; ++k) {
#pragma unroll
      for (int c = 0; c < R; c += 2) {
        double2 two = *reinterpret_cast<const double2*>(&inner[warp][k][c]);
        xm[c] = fma(two.x, y[k], xm[c]);
        if (c + 1 < R) xm[c + 1] = fma(two.y, y[k], xm[c + 1]);
      }
    }
#pragma unroll
    for (int c = 0; c < R; ++c)
      if (lane < N) shown[warp][lane][c] = xm[c];
    __syncwarp();
#pragma unroll
    for (int c = 0; c < R; ++c) vector = fma(-xm[c], rows[warp][c], vector);
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int c = 0; c < R; c += 2) {
        double2 two = *reinterpret_cast<const double2*>(&shown[warp][i][c]);
        a[i] = fma(-two.x, y[c], a[i]);
        if (c + 1 < R) a[i] = fma(-two.y, y[c + 1], a[i]);
      }
    }
    if (lane < N) {
      images[at * N + lane] = vector;
#pragma unroll
      for (int i = 0; i < N; ++i) updated[at * N * N + i * N + lane] = a[i];
    }
    __syncwarp();
  }
}
#endif

#ifdef SUM_OF_PRODUCTS
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sum_of_products(const double* __restrict__ matrices, const double* __restrict__ middle,
                const double* __restrict__ others, const double* __restrict__ weights,
                double* __restrict__ total, long long tasks) {
  constexpr int P = even(R);
  __shared__ __align__(16) double x[N][P], z[WARPS][R][P];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long seed = blockIdx.x;
  for (int at = threadIdx.x; at < N * R; at += 32 * WARPS) x[at / R][at % R] = middle[seed * N * R + at];
  __syncthreads();
  double sum[P];
#pragma unroll
  for (int c = 0; c < P; ++c) sum[c] = 0.0;
  for (long long task = warp; task < tasks; task += WARPS) {
    long long at = seed * tasks + task;
    for (int e = lane; e < R * R; e += 32) z[warp][e / R][e % R] = others[at * R * R + e];
    double y[P], weight = weights[at];
#pragma unroll
    for (int c = 0; c < P; ++c) y[c] = 0.0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      double a = lane < N ? matrices[at * N * N + k * N + lane] : 0.0;
#pragma unroll
      for (int c = 0; c < R; c += 2) {
        double2 two = *reinterpret_cast<const double2*>(&x[k][c]);
        y[c] = fma(a, two.x, y[c]);
        if (c + 1 < R) y[c + 1] = fma(a, two.y, y[c + 1]);
      }
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < R; ++k) {
      double own = weight * y[k];
#pragma unroll
      for (int c = 0; c < R; c += 2) {
        double2 two = *reinterpret_cast<const double2*>(&z[warp][k][c]);
        sum[c] = fma(own, two.x, sum[c]);
        if (c + 1 < R) sum[c + 1] = fma(own, two.y, sum[c + 1]);
      }
    }
    __syncwarp();
  }
  // The warps' sums, always in the same order.
  for (int turn = 0; turn < WARPS; ++turn) {
    __syncthreads();
    if (warp == turn && lane < N) {
#pragma unroll
      for (int c = 0; c < R; ++c) x[lane][c] = turn ? x[lane][c] + sum[c] : sum[c];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < N * R; at += 32 * WARPS) total[seed * N * R + at] = x[at / R][at % R];
}
#endif
