/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ep.c - "embarrassingly parallel", as NAS EP: pairs of random numbers from -1 to 1. Those
 * within the unit circle become pairs of Gaussian deviates. The program counts these by the
 * larger one's size, and adds them up. NAS publishes the sums: for 2^24 pairs (class S)
 * -3.247834652034740e3 and -6.958407078382297e3.
 *
 * Layout: one struct tally, jia_alloc1. Each task does its share of the pairs privately,
 * and adds the result to the tally under lock 0; barrier; task 0 reads the tally.
 */
#include "program.h"

#include <math.h>

/* x' = A x mod 2^46, from SEED on; x / 2^46 is the number. */
#define A 1220703125UL
#define SEED 271828183UL
#define MASK ((1UL << 46) - 1)

#define SIZES 10

struct tally {
	double x, y;
	long   pairs[SIZES]; /* by how large the larger one is */
};

static long exponent = 24;

/* The generator's state after `steps` steps. */
static unsigned long jump(unsigned long steps)
{
	unsigned long x = SEED, factor = A;

	for (; steps != 0; steps >>= 1, factor = factor * factor & MASK)
		if (steps & 1)
			x = x * factor & MASK;
	return x;
}

static double next(unsigned long *x)
{
	*x = A * *x & MASK;
	return 2 * ((double)*x * 0x1p-46) - 1;
}

static struct tally count(long first, long end)
{
	struct tally tally = {0};
	unsigned long state = jump(2 * (unsigned long)first);

	for (long pair = first; pair < end; pair++) {
		double x = next(&state), y = next(&state), t = x * x + y * y;

		if (t > 1)
			continue;
		double factor = sqrt(-2 * log(t) / t);
		x *= factor;
		y *= factor;
		tally.x += x;
		tally.y += y;
		tally.pairs[(int)fmax(fabs(x), fabs(y))]++;
	}
	return tally;
}

static void add(struct tally *to, const struct tally *what)
{
	to->x += what->x;
	to->y += what->y;
	for (int of = 0; of < SIZES; of++)
		to->pairs[of] += what->pairs[of];
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-8 * fabs(b);
}

static void compare(const struct tally *tally)
{
	struct tally one = count(0, 1L << exponent);

	/* Tasks add in other orders. */
	if (!near(tally->x, one.x) || !near(tally->y, one.y))
		jia_error("ep: the sums are %.15e and %.15e, and %.15e and %.15e on one task",
			  tally->x, tally->y, one.x, one.y);
	for (int of = 0; of < SIZES; of++)
		if (tally->pairs[of] != one.pairs[of])
			jia_error("ep: %ld pairs of size %d, and %ld on one task",
				  tally->pairs[of], of, one.pairs[of]);
	printf("ep: the same on one task\n");
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"exponent", &exponent, 0, 40, "2 to the power of this pairs"},
		{0},
	};
	begin(argc, argv, "Gaussian deviates by chance", options);

	long pairs = 1L << exponent;
	struct tally *tally = (struct tally *)jia_alloc1(sizeof *tally);
	jia_barrier();

	double start = seconds();
	struct tally own = count(share_begin(pairs, jiapid), share_end(pairs, jiapid));
	jia_lock(0);
	add(tally, &own);
	jia_unlock(0);
	jia_barrier();
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("ep: 2^%ld pairs, sums %.15e and %.15e, %d tasks: %.3f s\n", exponent,
		       tally->x, tally->y, jiahosts, time);
		if (verify)
			compare(tally);
	}
	jia_exit();
	return 0;
}
