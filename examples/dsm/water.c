/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * water.c - molecular dynamics of water: all pairs of molecules, each pair once.
 *
 * The molecules are flexible with three sites (SPC/Fw, by Wu, Tepper, Voth) in a periodic
 * box. Each site interacts with the nearest image of each other one. The force is shifted
 * to zero at half the box. Velocity Verlet steps take half a femtosecond. Units: nm, ps,
 * kJ/mol, atomic mass.
 *
 * Layout: positions, then forces, both an array of molecules, jia_alloc2 with one share for
 * each task; then the energies, jia_alloc1. Velocities are private to a molecule's owner.
 * Each task writes its positions; barrier; it computes forces, and then in each step
 *   each task moves its molecules (reads its forces, writes its positions, and writes 0 to
 *   its forces); barrier;
 *   for each of its molecules it reads the positions of the half of all that follow it, in a
 *   circle, and adds up forces privately; then task by task, from itself on, it adds its sums
 *   for that task's molecules under the lock with the task's number; barrier.
 * At the end it adds its energies under lock `tasks`.
 */
#include "program.h"

#include <math.h>

#define STEP 0.0005
#define SPACING 0.3107 /* of the lattice to begin with: one gram a cubic centimetre */

#define SIGMA 0.3165492
#define EPSILON 0.650299
#define COULOMB 138.935458
#define BOND 443153.4
#define BOND_LENGTH 0.1012
#define ANGLE 317.5656
#define ANGLE_REST (113.24 * M_PI / 180)

static const double charge[3] = {-0.82, 0.41, 0.41};
static const double mass[3] = {15.9994, 1.008, 1.008};

static long molecules = 512, steps = 10;
static double box;

typedef double vector[3];
typedef vector molecule[3]; /* oxygen, hydrogen, hydrogen */

struct energies {
	double kinetic, potential;
};

static double dot(const vector a, const vector b)
{
	return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void add(vector to, double factor, const vector what)
{
	for (int axis = 0; axis < 3; axis++)
		to[axis] += factor * what[axis];
}

/* A lattice, each molecule turned somehow. */
static void place(molecule at, long number)
{
	long side = lround(ceil(cbrt((double)molecules) - 1e-9));
	double turn = (double)(chance((unsigned long)number) % 628) / 100, half = ANGLE_REST / 2;

	for (int site = 0; site < 3; site++) {
		at[site][0] = (double)(number % side) * SPACING;
		at[site][1] = (double)(number / side % side) * SPACING;
		at[site][2] = (double)(number / side / side) * SPACING;
	}
	for (int site = 1; site < 3; site++) {
		double across = (site == 1 ? 1 : -1) * BOND_LENGTH * sin(half);

		at[site][0] += across * cos(turn);
		at[site][1] += across * sin(turn);
		at[site][2] += BOND_LENGTH * cos(half);
	}
}

/* Bonds and the angle within a molecule. Adds to the forces; returns the energy. */
static double within(const molecule at, molecule force)
{
	vector arm[2];
	double length[2], energy = 0;

	for (int h = 0; h < 2; h++) {
		for (int axis = 0; axis < 3; axis++)
			arm[h][axis] = at[h + 1][axis] - at[0][axis];
		length[h] = sqrt(dot(arm[h], arm[h]));
		double longer = length[h] - BOND_LENGTH;
		energy += BOND / 2 * longer * longer;
		add(force[h + 1], -BOND * longer / length[h], arm[h]);
		add(force[0], BOND * longer / length[h], arm[h]);
	}
	double cosine = dot(arm[0], arm[1]) / (length[0] * length[1]);
	double wider = acos(cosine) - ANGLE_REST;
	double torque = ANGLE * wider / sqrt(1 - cosine * cosine);
	for (int h = 0; h < 2; h++) {
		vector push = {0};

		add(push, torque / (length[0] * length[1]), arm[1 - h]);
		add(push, -torque * cosine / (length[h] * length[h]), arm[h]);
		add(force[h + 1], 1, push);
		add(force[0], -1, push);
	}
	return energy + ANGLE / 2 * wider * wider;
}

/* Two sites r apart, or the 1/r and 1/r^6 parts of them: energy, and force / r. */
static double between_sites(int a, int b, double r, double *force)
{
	double energy = COULOMB * charge[a] * charge[b] / r;

	*force = energy / (r * r);
	if (a == 0 && b == 0) {
		double s6 = pow(SIGMA / r, 6);

		energy += 4 * EPSILON * (s6 * s6 - s6);
		*force += 24 * EPSILON * (2 * s6 * s6 - s6) / (r * r);
	}
	return energy;
}

/* Two molecules. Adds to the forces on both; returns the energy. */
static double between(const molecule one, const molecule two, molecule force_one,
	molecule force_two)
{
	double energy = 0, range = box / 2;

	for (int a = 0; a < 3; a++)
		for (int b = 0; b < 3; b++) {
			vector apart;
			double force, end_force;

			for (int axis = 0; axis < 3; axis++) {
				apart[axis] = one[a][axis] - two[b][axis];
				apart[axis] -= box * round(apart[axis] / box);
			}
			double r = sqrt(dot(apart, apart));
			if (r >= range)
				continue;
			double end = between_sites(a, b, range, &end_force);
			energy += between_sites(a, b, r, &force) - end +
				  (r - range) * end_force * range;
			force -= end_force * range / r;
			add(force_one[a], force, apart);
			add(force_two[b], -force, apart);
		}
	return energy;
}

/* Forces on all molecules by those `first` to `end` - 1 and the half that follows each. */
static double pairs(const molecule *at, molecule *force, long first, long end)
{
	double energy = 0;

	for (long i = first; i < end; i++) {
		energy += within(at[i], force[i]);
		for (long next = 1; next <= molecules / 2; next++) {
			long j = (i + next) % molecules;

			/* Of an even number, the opposite one: by the lower half only. */
			if (2 * next == molecules && i >= j)
				continue;
			energy += between(at[i], at[j], force[i], force[j]);
		}
	}
	return energy;
}

/* Half a step faster; returns the kinetic energy. */
static double kick(molecule *speed, const molecule *force, long count, double time)
{
	double energy = 0;

	for (long i = 0; i < count; i++)
		for (int site = 0; site < 3; site++) {
			add(speed[i][site], time / mass[site], force[i][site]);
			energy += mass[site] / 2 * dot(speed[i][site], speed[i][site]);
		}
	return energy;
}

static void drift(molecule *at, const molecule *speed, long count, double time)
{
	for (long i = 0; i < count; i++)
		for (int site = 0; site < 3; site++)
			add(at[i][site], time, speed[i][site]);
}

/* Adds to the forces of all tasks' molecules; returns this task's part of the energy. */
static double forces_together(const molecule *at, molecule *force, molecule *own)
{
	memset(own, 0, (size_t)molecules * sizeof *own);
	long mine = share_begin(molecules, jiapid), behind = share_end(molecules, jiapid);
	double energy = pairs(at, own, mine, behind);

	for (int next = 0; next < jiahosts; next++) {
		int task = (jiapid + next) % jiahosts;
		long first = share_begin(molecules, task), end = share_end(molecules, task);

		/* With more tasks than molecules. */
		if (first == end || mine == behind)
			continue;
		jia_lock(task);
		for (long i = first; i < end; i++)
			for (int site = 0; site < 3; site++)
				add(force[i][site], 1, own[i][site]);
		jia_unlock(task);
	}
	jia_barrier();
	return energy;
}

static void compare(const molecule *together, const struct energies *energies)
{
	molecule *at = private_memory((size_t)molecules * sizeof *at);
	molecule *force = private_memory((size_t)molecules * sizeof *force);
	molecule *speed = private_memory((size_t)molecules * sizeof *speed);
	struct energies one = {0};

	for (long i = 0; i < molecules; i++)
		place(at[i], i);
	one.potential = pairs(at, force, 0, molecules);
	double before = one.potential;
	for (long step = 0; step < steps; step++) {
		kick(speed, force, molecules, STEP / 2);
		drift(at, speed, molecules, STEP);
		memset(force, 0, (size_t)molecules * sizeof *force);
		one.potential = pairs(at, force, 0, molecules);
		one.kinetic = kick(speed, force, molecules, STEP / 2);
	}
	/* Tasks add forces in other orders, which small errors grow from. */
	for (long i = 0; i < molecules; i++)
		for (int site = 0; site < 3; site++)
			for (int axis = 0; axis < 3; axis++)
				if (!(fabs(together[i][site][axis] - at[i][site][axis]) < 1e-7))
					jia_error("water: site %d of molecule %ld is at %.12g, and "
						  "%.12g on one task", site, i,
						  together[i][site][axis], at[i][site][axis]);
	/* The stiffest bond swings in 18 steps: the energy of Verlet's method swings with it. */
	if (!(fabs(energies->kinetic + energies->potential - before) <
	      0.05 * (1 + one.kinetic)))
		jia_error("water: energy is not kept: %.6f before, %.6f after", before,
			  energies->kinetic + energies->potential);
	printf("water: the same on one task\n");
	free(at);
	free(force);
	free(speed);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"molecules", &molecules, 2, 1 << 20, "how many"},
		{"steps", &steps, 0, 1 << 20, "of half a femtosecond"},
		{0},
	};
	begin(argc, argv, "molecular dynamics of water", options);

	long first = share_begin(molecules, jiapid), count = share_end(molecules, jiapid) - first;
	size_t size = (size_t)molecules * sizeof(molecule);
	size_t part = (size_t)share(molecules) * sizeof(molecule);
	molecule *at = (molecule *)jia_alloc2(size, part);
	molecule *force = (molecule *)jia_alloc2(size, part);
	struct energies *energies = (struct energies *)jia_alloc1(sizeof *energies);
	molecule *own = private_memory(size);
	molecule *speed = private_memory((size_t)count * sizeof *speed);
	struct energies mine = {0};

	box = ceil(cbrt((double)molecules) - 1e-9) * SPACING;
	for (long i = first; i < first + count; i++)
		place(at[i], i);
	jia_barrier();

	double start = seconds();
	mine.potential = forces_together(at, force, own);
	for (long step = 0; step < steps; step++) {
		kick(speed, force + first, count, STEP / 2);
		drift(at + first, speed, count, STEP);
		memset(force + first, 0, (size_t)count * sizeof *force);
		jia_barrier();
		mine.potential = forces_together(at, force, own);
		mine.kinetic = kick(speed, force + first, count, STEP / 2);
	}
	jia_lock(jiahosts);
	energies->kinetic += mine.kinetic;
	energies->potential += mine.potential;
	jia_unlock(jiahosts);
	jia_barrier();
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("water: %ld molecules, %ld steps, energy %.6f + %.6f kJ/mol, %d tasks: %.3f s\n",
		       molecules, steps, energies->kinetic, energies->potential, jiahosts, time);
		if (verify)
			compare(at, energies);
	}
	jia_exit();
	return 0;
}
