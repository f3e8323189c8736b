// The computations of JIAJIA's own applications, small, in its idioms: `kernels NAME`. Task 0
// prints a hash of the results. Rounding does not depend on the number of tasks, so the output is
// that of the same program linked with serial.c.

#include <jia.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash;

static void add_to_hash(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * 1099511628211u;
}

// The `at`th number of a sequence, from 0 to 1.
static double uniform(uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (double)(x >> 11) * 0x1p-53;
}

// Of `n` items, this task's first one, and the one after its last.
static int begin_of(int n, int task)
{
	return (int)((long)n * task / jiahosts);
}

// Private counts, added up under a lock.
static void ep(void)
{
	enum { PAIRS = 20000, RINGS = 10 };
	int *shared = (int *)jia_alloc(RINGS * sizeof *shared);
	int counts[RINGS] = { 0 };
	jia_barrier();
	for (int i = begin_of(PAIRS, jiapid); i < begin_of(PAIRS, jiapid + 1); i++) {
		double x = 2 * uniform(2 * i) - 1, y = 2 * uniform(2 * i + 1) - 1;
		double t = x * x + y * y;
		if (t > 1 || t == 0)
			continue;
		double factor = sqrt(-2 * log(t) / t);
		counts[(int)fmax(fabs(x * factor), fabs(y * factor)) % RINGS]++;
	}
	jia_lock(0);
	for (int i = 0; i < RINGS; i++)
		shared[i] += counts[i];
	jia_unlock(0);
	jia_barrier();
	add_to_hash(shared, RINGS * sizeof *shared);
}

// Counters that grow from task to task under a lock; each task puts its keys where they belong.
static void is(void)
{
	enum { KEYS = 6000, RANGE = 3000, ROUNDS = 3 };
	int *counters = (int *)jia_alloc(RANGE * sizeof *counters);
	int *sorted = (int *)jia_alloc2(KEYS * sizeof *sorted, 8192);
	int first = begin_of(KEYS, jiapid), end = begin_of(KEYS, jiapid + 1);
	int own[RANGE];
	jia_barrier();
	for (int round = 0; round < ROUNDS; round++) {
		memset(own, 0, sizeof own);
		for (int i = first; i < end; i++)
			own[(int)(uniform(i + round) * RANGE)]++;
		if (jiapid == 0)
			memset(counters, 0, RANGE * sizeof *counters);
		jia_barrier();
		jia_lock(0);
		for (int key = 0; key < RANGE; key++) {
			int before = counters[key];
			counters[key] += own[key];
			own[key] = before;
		}
		jia_unlock(0);
		jia_barrier();
		int smaller = 0;
		for (int key = 0; key < RANGE; key++) {
			own[key] += smaller;
			smaller += counters[key];
		}
		for (int i = first; i < end; i++) {
			int key = (int)(uniform(i + round) * RANGE);
			sorted[own[key]++] = key;
		}
		jia_barrier();
		for (int i = 1; i < KEYS; i++)
			if (sorted[i - 1] > sorted[i])
				jia_error("is: %d before %d", sorted[i - 1], sorted[i]);
		add_to_hash(sorted, KEYS * sizeof *sorted);
		jia_barrier();
	}
}

// A page and more for each row, on the task that writes it; its neighbours read it.
static void sor(void)
{
	enum { ROWS = 26, COLUMNS = 2500, ITERATIONS = 6 };
	float *rows[2][ROWS];
	for (int i = 0; i < ROWS; i++)
		for (int colour = 0; colour < 2; colour++)
			rows[colour][i] = (float *)jia_alloc2p(COLUMNS * sizeof(float),
				i * jiahosts / ROWS);
	jia_barrier();
	if (jiapid == 0)
		for (int i = 0; i < ROWS; i++)
			for (int k = 0; k < COLUMNS; k++)
				rows[0][i][k] = rows[1][i][k] = (float)uniform(i * COLUMNS + k);
	jia_barrier();
	jia_config(WVEC, ON);
	jia_config(ADWD, ON);
	for (int half = 0; half < 2 * ITERATIONS; half++) {
		if (half == ITERATIONS)
			jia_config(HMIG, ON);
		float **to = rows[half % 2], **from = rows[1 - half % 2];
		for (int i = 1; i < ROWS - 1; i++)
			for (int k = 1; i * jiahosts / ROWS == jiapid && k < COLUMNS; k++)
				to[i][k] = (from[i - 1][k] + from[i + 1][k] + from[i][k - 1] +
					    from[i][k]) / 4;
		jia_barrier();
	}
	for (int i = 0; i < ROWS; i++)
		for (int colour = 0; colour < 2; colour++)
			add_to_hash(rows[colour][i], COLUMNS * sizeof(float));
}

// Columns in turns; all read the one that is done.
static void lu(void)
{
	enum { N = 72 };
	double *columns[N];
	for (int j = 0; j < N; j++)
		columns[j] = (double *)jia_alloc2p(N * sizeof(double), j % jiahosts);
	for (int j = jiapid; j < N; j += jiahosts)
		for (int i = 0; i < N; i++)
			columns[j][i] = uniform(j * N + i) + (i == j ? N : 0);
	jia_barrier();
	for (int k = 0; k < N; k++) {
		if (k % jiahosts == jiapid)
			for (int i = k + 1; i < N; i++)
				columns[k][i] /= columns[k][k];
		jia_barrier();
		for (int j = k + 1; j < N; j++)
			for (int i = k + 1; j % jiahosts == jiapid && i < N; i++)
				columns[j][i] -= columns[k][i] * columns[j][k];
	}
	jia_barrier();
	for (int j = 0; j < N; j++)
		add_to_hash(columns[j], N * sizeof(double));
}

// Bands of three matrices, the second one transposed.
static void mm(void)
{
	enum { N = 96 };
	float(*m[3])[N];
	for (int i = 0; i < 3; i++)
		m[i] = (float(*)[N])jia_alloc3(sizeof(float[N][N]), sizeof(float[N][N]) / jiahosts, 0);
	jia_barrier();
	for (int i = 0; i < N && jiapid == 0; i++)
		for (int j = 0; j < N; j++) {
			m[0][i][j] = (float)uniform(i * N + j);
			m[1][i][j] = (float)uniform(j * N + i + 7);
		}
	jia_barrier();
	for (int i = begin_of(N, jiapid); i < begin_of(N, jiapid + 1); i++)
		for (int j = 0; j < N; j++) {
			float sum = 0;
			for (int k = 0; k < N; k++)
				sum += m[0][i][k] * m[1][j][k];
			m[2][i][j] = sum;
		}
	jia_barrier();
	add_to_hash(m[2], sizeof(float[N][N]));
}

// Pairs of bodies; each task adds its forces to those of all under the owner's lock. Numbers of
// fixed point, so that the sums do not depend on whose turn was first.
static void water(void)
{
	enum { BODIES = 120, STEPS = 4, ONE = 1 << 20 };
	int64_t *at = (int64_t *)jia_alloc2p(BODIES * sizeof *at, 0);
	int64_t *force = (int64_t *)jia_alloc1(BODIES * sizeof *force);
	int64_t own[BODIES], speed[BODIES] = { 0 };
	int first = begin_of(BODIES, jiapid), end = begin_of(BODIES, jiapid + 1);
	for (int i = first; i < end; i++)
		at[i] = (int64_t)(uniform(i) * 100 * ONE);
	jia_barrier();
	for (int step = 0; step < STEPS; step++) {
		memset(own, 0, sizeof own);
		for (int i = first; i < end; i++)
			for (int j = 0; j < i; j++) {
				int64_t apart = at[i] - at[j];
				int64_t push = apart == 0 ? 0 : (int64_t)ONE * ONE / apart;
				own[i] += push;
				own[j] -= push;
			}
		jia_barrier();
		for (int i = first; i < end; i++)
			force[i] = 0;
		jia_barrier();
		for (int task = 0; task < jiahosts; task++) {
			jia_lock(task + 3);
			for (int i = begin_of(BODIES, task); i < begin_of(BODIES, task + 1); i++)
				force[i] += own[i];
			jia_unlock(task + 3);
		}
		jia_barrier();
		for (int i = first; i < end; i++) {
			speed[i] += force[i] / 16;
			at[i] += speed[i];
		}
		jia_barrier();
	}
	add_to_hash(at, BODIES * sizeof *at);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} kernels[] = { { "ep", ep }, { "is", is }, { "sor", sor },
		{ "lu", lu }, { "mm", mm }, { "water", water } };
	jia_init(argc, argv);
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (argc == 2 && strcmp(argv[1], kernels[i].name) == 0)
			kernels[i].run();
	if (jiapid == 0)
		printf("%s: %016lx\n", argv[1], (unsigned long)hash);
	jia_exit();
	return 0;
}
