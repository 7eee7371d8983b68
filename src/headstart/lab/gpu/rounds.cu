// All rounds of one task, for every seed and policy, with the state kept on chip.
//
// A block is one seed, a warp one policy: the policies of a seed share its contexts, which the
// block draws into shared memory one round ahead. A warp holds its belief in registers: lane j has
// column j of the root F, and the lane after the last column has the mean, so that one pass over
// the contexts gives Fᵀx and xᵀθ̂ together. Only the chosen contexts and their rewards go back to memory.
//
// A task is played in one call or, if FREE, in several with beliefs made anew in between.
//
// Defined by the caller: REAL (float or double; WIDE says which), D features, of which the last is
// 1 in every context if INTERCEPT, K arms, P policies, BLOCKS per multiprocessor, FREE if a policy
// may find out the noise. Random numbers are Philox 4x32-10, counted by what they are for: a seed's
// numbers do not depend on which other seeds or policies run beside it.

#define ALL 0xffffffffu
#define LEAST ((REAL)-1e30f)
#define DRAWN (D - INTERCEPT)                        // features that are drawn
#define COLUMNS ((D + 1 + 31) / 32)                  // columns of [F, mean] that a lane holds
#define QUADS ((D + 3) / 4)                          // a context as groups of four numbers
#define STRIDE (4 * (QUADS + (QUADS % 2 == 0)))      // an odd number of groups: no bank conflicts
#define CHUNKS ((K + 31) / 32)                       // arms are compared 32 or fewer at a time,
#define CHUNK ((K + CHUNKS - 1) / CHUNKS)
#define GROUP 4                                      // and scored four at a time

enum Rule { UCB = 0, THOMPSON = 1, UNIFORM = 2 };
enum Use { CONTEXTS = 0, NOISE = 1, DRAWS = 2, FORCED = 3 };

struct __align__(16) Four { REAL a, b, c, d; };

__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
  #pragma unroll
  for (int turn = 0; turn < 10; turn++) {
    unsigned low0 = 0xD2511F53u * counter.x, high0 = __umulhi(0xD2511F53u, counter.x);
    unsigned low1 = 0xCD9E8D57u * counter.z, high1 = __umulhi(0xCD9E8D57u, counter.z);
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

// Numbers above 0, and no more than 1.
__device__ __forceinline__ float unit(unsigned bits) { return (bits >> 8) * 0x1p-24f + 0x1p-25f; }

// Two normals from two random words (Box and Muller).
__device__ __forceinline__ float2 normals(unsigned first, unsigned second) {
  float radius = sqrtf(-2.0f * __logf(unit(first))), sine, cosine;
  sincospif(2.0f * unit(second), &sine, &cosine);
  return make_float2(radius * cosine, radius * sine);
}

__device__ __forceinline__ float4 four_normals(uint4 counter, uint2 key) {
  uint4 bits = philox(counter, key);
  float2 one = normals(bits.x, bits.y), two = normals(bits.z, bits.w);
  return make_float4(one.x, one.y, two.x, two.y);
}

// Lane l gets the sum over all lanes of their v[l]: 31 exchanges for 32 sums. (Recursive, because a
// loop whose steps halve is not unrolled, and then the array would leave the registers.)
template <int HALF>
__device__ __forceinline__ void halve(REAL (&v)[32], int lane) {
  bool upper = lane & HALF;
  #pragma unroll
  for (int c = 0; c < HALF; c++) {
    REAL mine = upper ? v[c + HALF] : v[c], theirs = upper ? v[c] : v[c + HALF];
    v[c] = mine + __shfl_xor_sync(ALL, theirs, HALF);
  }
  if constexpr (HALF > 1) halve<HALF / 2>(v, lane);
}

__device__ __forceinline__ REAL sums_by_lane(REAL (&v)[32], int lane) {
  halve<16>(v, lane);
  return v[0];
}

__device__ __forceinline__ REAL sum(REAL value) {
  #pragma unroll
  for (int half = 16; half >= 1; half /= 2) value += __shfl_xor_sync(ALL, value, half);
  return value;
}

// The lane with the largest value, the lowest of equals.
__device__ __forceinline__ int leader(REAL value) {
#if WIDE
  unsigned long long bits = __double_as_longlong(value);
  bits = bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
  unsigned high = bits >> 32, low = bits;
  unsigned top = __reduce_max_sync(ALL, high);
  low = high == top ? low : 0u;
  unsigned rest = __reduce_max_sync(ALL, low);
  return __ffs(__ballot_sync(ALL, high == top && low == rest)) - 1;
#else
  unsigned bits = __float_as_uint(value);
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;
  return __ffs(__ballot_sync(ALL, bits == __reduce_max_sync(ALL, bits))) - 1;
#endif
}

extern "C" __global__ void __launch_bounds__(32 * P, BLOCKS) play(
    const REAL* __restrict__ means,       // [P][seeds][D]
    const REAL* __restrict__ roots,       // [P][seeds][D][D]
    const REAL* __restrict__ amounts,     // [P][seeds]: γ of UCB, v of Thompson, in rewards' units
    const REAL* __restrict__ squares,     // [P][seeds]: S, from which a task alone tells R
    const REAL* __restrict__ multipliers, // [P]: amounts in units of R = √(S/k); 0 if R is known
    const int* __restrict__ rules,        // [P]
    const int* __restrict__ forced,       // [P]: uniformly random rounds first
    const int* __restrict__ duties,       // [P]: warps in the order in which they draw contexts
    const float* __restrict__ thetas,     // [seeds][DRAWN]: this task's true parameters
    const float* __restrict__ deviations, // [seeds][DRAWN]: of contexts, by feature
    const unsigned long long* __restrict__ keys,  // [seeds]
    const unsigned* __restrict__ marks,   // [P]: tell the policies' own random numbers apart
    float noise, float logistic, unsigned task, int rounds, int first_round, int last_round,
    const int* __restrict__ checkpoints, int n_checkpoints,
    float* __restrict__ chosen_contexts,  // [P][seeds][rounds][D]
    float* __restrict__ chosen_rewards,   // [P][seeds][rounds]
    float* __restrict__ regrets,          // [P][seeds][n_checkpoints]
    REAL* __restrict__ regret_so_far,     // [P][seeds]: between two calls
    REAL* __restrict__ last_means,        // [P][seeds][D]: beliefs where a call stops early
    REAL* __restrict__ last_roots,        // [P][seeds][D][D]
    REAL* __restrict__ last_squares,      // [P][seeds]
    float* __restrict__ seen_contexts,    // [seeds][rounds][K][D], or null
    float* __restrict__ seen_rewards,     // [seeds][rounds][K], or null
    float* __restrict__ seen_draws,       // [P][seeds][rounds][D], or null
    int* __restrict__ seen_arms)          // [P][seeds][rounds], or null
{
  __shared__ __align__(16) REAL offers[2][K][STRIDE];
  __shared__ REAL values[2][K];
  __shared__ float chances[2];
  __shared__ __align__(16) REAL vectors[P][4 * QUADS + 4 * (QUADS % 2 == 0)];
  __shared__ REAL expected[P][CHUNK];

  const int lane = threadIdx.x % 32, policy = threadIdx.x / 32;
  const int seed = blockIdx.x, seeds = gridDim.x;
  const unsigned long long key64 = keys[seed];
  const uint2 key = make_uint2((unsigned)key64, (unsigned)(key64 >> 32));
  const uint2 own_key = make_uint2(key.x ^ marks[policy], key.y + 0x9E3779B9u);
  const size_t place = (size_t)policy * seeds + seed;

  float theta[(D + 31) / 32], deviation[(D + 31) / 32];
  #pragma unroll
  for (int part = 0; part < (D + 31) / 32; part++) {
    int i = lane + 32 * part;
    theta[part] = i < DRAWN ? thetas[(size_t)seed * DRAWN + i] : 0.0f;
    deviation[part] = i < DRAWN ? deviations[(size_t)seed * DRAWN + i] : 0.0f;
  }
  REAL F[COLUMNS][4 * QUADS];
  #pragma unroll
  for (int column = 0; column < COLUMNS; column++) {
    int j = lane + 32 * column;
    #pragma unroll
    for (int i = 0; i < 4 * QUADS; i++) {
      REAL entry = 0;
      if (i < D && j < D) entry = roots[(place * D + i) * D + j];
      if (i < D && j == D) entry = means[place * D + i];
      F[column][i] = entry;
    }
  }
#if FREE
  REAL amount = amounts[place], square_sum = squares[place];
  const REAL multiplier = multipliers[policy];
  const int start = first_round, stop = last_round;
#else
  const REAL amount = amounts[place];
  const int start = 0, stop = rounds;
#endif
  const int rule = rules[policy], forced_rounds = forced[policy];
  int duty = 0;
  for (int w = 0; w < P; w++) if (duties[w] == policy) duty = w;
  for (int row = threadIdx.x; row < 2 * K; row += 32 * P)  // what pads a context is zero
    for (int i = DRAWN; i < STRIDE; i++) offers[row / K][row % K][i] = i < D ? 1 : 0;

  // The contexts of a round, four arms to a warp: N(0, diag(c)), no longer than 1.
  auto offer = [&](int round) {
    const int groups = (K + 3) / 4, side = round % 2;
    for (int group = duty; group < groups; group += P) {
      float drawn[(D + 31) / 32][4], length[4] = {0, 0, 0, 0}, value[4] = {0, 0, 0, 0};
      #pragma unroll
      for (int part = 0; part < (D + 31) / 32; part++) {
        float4 z = four_normals(
            make_uint4(lane + 32 * part + 64 * group, round, task, CONTEXTS), key);
        float raw[4] = {z.x, z.y, z.z, z.w};
        #pragma unroll
        for (int a = 0; a < 4; a++) {
          float x = raw[a] * deviation[part];
          drawn[part][a] = x;
          length[a] += x * x;
          value[a] += x * theta[part];
        }
      }
      #pragma unroll
      for (int half = 16; half >= 1; half /= 2)
        #pragma unroll
        for (int a = 0; a < 4; a++) {
          length[a] += __shfl_xor_sync(ALL, length[a], half);
          value[a] += __shfl_xor_sync(ALL, value[a], half);
        }
      #pragma unroll
      for (int a = 0; a < 4; a++) {
        int arm = 4 * group + a;
        if (arm >= K) break;
        float scale = length[a] > 1.0f ? rsqrtf(length[a]) : 1.0f;
        #pragma unroll
        for (int part = 0; part < (D + 31) / 32; part++) {
          int i = lane + 32 * part;
          if (i < DRAWN) offers[side][arm][i] = drawn[part][a] * scale;
        }
        float worth = value[a] * scale;
        if (logistic > 0.0f) worth = 1.0f / (1.0f + __expf(-logistic * worth));
        if (lane == 0) values[side][arm] = worth;
      }
    }
    if (duty == P - 1 && lane == 0) {
      uint4 bits = philox(make_uint4(0, round, task, NOISE), key);
      chances[side] = logistic > 0.0f ? unit(bits.x) : normals(bits.x, bits.y).x;
    }
  };

  // A weighted sum of the columns of [F, mean], into the policy's vector.
  auto combine = [&](const REAL (&weight)[COLUMNS]) {
    __syncwarp();
    #pragma unroll
    for (int part = 0; part < (D + 31) / 32; part++) {
      REAL products[32];
      #pragma unroll
      for (int c = 0; c < 32; c++) {
        int i = 32 * part + c;
        REAL product = 0;
        if (i < D) {
          #pragma unroll
          for (int column = 0; column < COLUMNS; column++)
            product += F[column][i < 4 * QUADS ? i : 0] * weight[column];
        }
        products[c] = product;
      }
      REAL entry = sums_by_lane(products, lane);
      if (32 * part + lane < 4 * QUADS) vectors[policy][32 * part + lane] = entry;
    }
    __syncwarp();
  };

  offer(start);
  __syncthreads();
  REAL regret = start ? regret_so_far[place] : (REAL)0;
  float4 spare[COLUMNS];
  int next_checkpoint = 0;
  while (next_checkpoint < n_checkpoints && checkpoints[next_checkpoint] <= start)
    next_checkpoint++;
  for (int round = start; round < stop; round++) {
    const int side = round % 2;
    if (round + 1 < stop) offer(round + 1);

    int arm;
    if (round < forced_rounds || rule == UNIFORM) {
      uint4 bits = philox(make_uint4(0, round, task, FORCED), own_key);
      arm = __umulhi(bits.x, K);
    } else if (rule == THOMPSON) {
      // θ̃ = θ̂ + v F z: the mean's lane has z = 1 and no v. Four rounds' normals at a time.
      REAL weight[COLUMNS];
      #pragma unroll
      for (int column = 0; column < COLUMNS; column++) {
        int j = lane + 32 * column;
        if (round % 4 == 0 || round == forced_rounds || round == start)
          spare[column] = four_normals(make_uint4(j, round / 4, task, DRAWS), own_key);
        float z = round % 4 == 0   ? spare[column].x
                  : round % 4 == 1 ? spare[column].y
                  : round % 4 == 2 ? spare[column].z
                                   : spare[column].w;
        weight[column] = j == D ? (REAL)1 : j < D ? amount * z : (REAL)0;
        if (seen_draws && j < D) seen_draws[(place * rounds + round) * D + j] = z;
      }
      combine(weight);
      REAL best = LEAST;
      int candidate = 0;
      for (int first = 0; first < K; first += 32) {
        int k = first + lane;
        if (k < K) {
          REAL score = 0;
          #pragma unroll
          for (int quad = 0; quad < QUADS; quad++) {
            Four x = *reinterpret_cast<const Four*>(&offers[side][k][4 * quad]);
            Four t = *reinterpret_cast<const Four*>(&vectors[policy][4 * quad]);
            score += x.a * t.a + x.b * t.b + x.c * t.c + x.d * t.d;
          }
          if (score > best) best = score, candidate = k;
        }
      }
      arm = __shfl_sync(ALL, candidate, leader(best));
    } else {
      // xᵀθ̂ + γ‖Fᵀx‖ of every arm.
      REAL best = LEAST;
      int candidate = 0;
      #pragma unroll 1
      for (int chunk = 0; chunk < CHUNKS; chunk++) {
        REAL squares[32];
        #pragma unroll
        for (int c = 0; c < 32; c++) squares[c] = 0;
        #pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
          bool is_mean = lane + 32 * column == D;
          #pragma unroll
          for (int first = 0; first < CHUNK; first += GROUP) {
            REAL projected[GROUP];
            #pragma unroll
            for (int c = 0; c < GROUP; c++) projected[c] = 0;
            #pragma unroll
            for (int quad = 0; quad < QUADS; quad++) {
              #pragma unroll
              for (int c = 0; c < GROUP; c++) {
                int k = min(chunk * CHUNK + first + c, K - 1);
                Four x = *reinterpret_cast<const Four*>(&offers[side][k][4 * quad]);
                projected[c] += x.a * F[column][4 * quad];
                projected[c] += x.b * F[column][4 * quad + 1];
                projected[c] += x.c * F[column][4 * quad + 2];
                projected[c] += x.d * F[column][4 * quad + 3];
              }
            }
            #pragma unroll
            for (int c = 0; c < GROUP; c++)
              if (first + c < CHUNK) {
                if (is_mean) expected[policy][first + c] = projected[c];
                squares[first + c] += is_mean ? (REAL)0 : projected[c] * projected[c];
              }
          }
        }
        __syncwarp();
        REAL square = sums_by_lane(squares, lane);
        int k = chunk * CHUNK + lane;
        if (lane < CHUNK && k < K) {
          REAL index = expected[policy][lane] + amount * sqrt(square);
          if (index > best) best = index, candidate = k;
        }
        __syncwarp();
      }
      arm = __shfl_sync(ALL, candidate, leader(best));
    }

    // Its reward, its regret, and the square-root update of the belief.
    REAL worth = values[side][arm];
    REAL top = LEAST;
    for (int k = lane; k < K; k += 32) top = max(top, values[side][k]);
    regret += __shfl_sync(ALL, top, leader(top)) - worth;
    REAL reward = logistic > 0.0f ? (REAL)(chances[side] < worth) : worth + noise * chances[side];
    const REAL* x = offers[side][arm];
    REAL u[COLUMNS];
    #pragma unroll
    for (int column = 0; column < COLUMNS; column++) u[column] = 0;
    #pragma unroll
    for (int quad = 0; quad < QUADS; quad++) {
      Four part = *reinterpret_cast<const Four*>(&x[4 * quad]);
      #pragma unroll
      for (int column = 0; column < COLUMNS; column++) {
        u[column] += part.a * F[column][4 * quad] + part.b * F[column][4 * quad + 1];
        u[column] += part.c * F[column][4 * quad + 2] + part.d * F[column][4 * quad + 3];
      }
    }
    REAL guess = __shfl_sync(ALL, u[COLUMNS - 1], D % 32);
    if (lane == D % 32) u[COLUMNS - 1] = 0;
    REAL square = 0;
    #pragma unroll
    for (int column = 0; column < COLUMNS; column++) square += u[column] * u[column];
    REAL s = sum(square), g = sqrt(1 + s);
    combine(u);
    REAL factor[COLUMNS];
    #pragma unroll
    for (int column = 0; column < COLUMNS; column++) factor[column] = u[column] / (g * (1 + g));
    if (lane == D % 32) factor[COLUMNS - 1] = -(reward - guess) / (1 + s);
    #pragma unroll
    for (int quad = 0; quad < QUADS; quad++) {
      Four gain = *reinterpret_cast<const Four*>(&vectors[policy][4 * quad]);
      #pragma unroll
      for (int column = 0; column < COLUMNS; column++) {
        F[column][4 * quad] -= gain.a * factor[column];
        F[column][4 * quad + 1] -= gain.b * factor[column];
        F[column][4 * quad + 2] -= gain.c * factor[column];
        F[column][4 * quad + 3] -= gain.d * factor[column];
      }
    }

#if FREE
    REAL away = reward - guess;
    square_sum += away * away / (1 + s);
    if (multiplier > 0 && square_sum > 0) amount = multiplier * sqrt(square_sum / (round + 1));
#endif

    for (int i = lane; i < D; i += 32) chosen_contexts[(place * rounds + round) * D + i] = x[i];
    if (lane == 0) chosen_rewards[place * rounds + round] = reward;
    if (next_checkpoint < n_checkpoints && checkpoints[next_checkpoint] == round + 1) {
      if (lane == 0) regrets[place * n_checkpoints + next_checkpoint] = regret;
      next_checkpoint++;
    }
    if (seen_arms && lane == 0) seen_arms[place * rounds + round] = arm;
    if (seen_contexts && policy == 0) {
      for (int entry = lane; entry < K * D; entry += 32)
        seen_contexts[((size_t)seed * rounds + round) * K * D + entry] =
            offers[side][entry / D][entry % D];
      for (int k = lane; k < K; k += 32)
        seen_rewards[((size_t)seed * rounds + round) * K + k] =
            logistic > 0.0f ? (float)(chances[side] < values[side][k])
                            : values[side][k] + noise * chances[side];
    }
    __syncthreads();
  }
#if FREE
  if (stop == rounds) return;
  #pragma unroll
  for (int column = 0; column < COLUMNS; column++) {
    int j = lane + 32 * column;
    #pragma unroll
    for (int i = 0; i < D; i++) {
      if (j < D) last_roots[(place * D + i) * D + j] = F[column][i];
      if (j == D) last_means[place * D + i] = F[column][i];
    }
  }
  if (lane == 0) {
    regret_so_far[place] = regret;
    last_squares[place] = square_sum;
  }
#endif
}
