/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * tsp.c - the travelling salesman: the shortest tour through all cities, by branch and
 * bound.
 *
 * Layout: struct job, jia_alloc1; then the queue, jia_alloc1: all beginnings of a tour with
 * `depth` cities after the first one, the most promising ones first. Each task computes the
 * distances privately. Task 0 writes the queue and the length of a first tour; barrier.
 * Then each task repeats until the queue is empty: under lock 0, it takes the number of the
 * next beginning and reads the best length; it reads that beginning, and searches all tours
 * with it. If it finds a shorter tour, it writes this to the job under lock 0, if it is
 * still shorter, and reads the best length again. At the end, barrier. The order of arrival
 * determines the searches of each task, but not the shortest length.
 */
#include "program.h"

#include <math.h>

#define CITIES 64

static long cities = 18, depth = 3, seed = 1;

/* A task's view: a tour that it is at, how long the best one is that it knows of. */
struct search {
	int  tour[CITIES];
	bool visited[CITIES];
	int  best; /* length */
};

/* Data that tasks share under lock 0. */
struct job {
	long next; /* of the queue */
	int  best; /* length */
	int  tour[CITIES];
};

/* The beginning of a tour; no tour with it is shorter than `least`. */
struct beginning {
	int           least;
	unsigned char tour[CITIES / 8];
};

static int distance[CITIES][CITIES];
static int nearest[CITIES]; /* the distance to the next city */

static struct job *job;
static struct beginning *queue;
static long queued;

static void place_cities(void)
{
	double at[CITIES][2];

	for (int city = 0; city < cities; city++)
		for (int axis = 0; axis < 2; axis++)
			at[city][axis] = (double)(chance((unsigned long)(
				(seed * CITIES + city) * 2 + axis)) % 10000);
	for (int a = 0; a < cities; a++) {
		nearest[a] = 1 << 20;
		for (int b = 0; b < cities; b++) {
			distance[a][b] = (int)hypot(at[a][0] - at[b][0], at[a][1] - at[b][1]);
			if (a != b && distance[a][b] < nearest[a])
				nearest[a] = distance[a][b];
		}
	}
}

static int length(const int *tour)
{
	int sum = 0;

	for (int at = 0; at < cities; at++)
		sum += distance[tour[at]][tour[(at + 1) % cities]];
	return sum;
}

typedef void finder(struct search *, int length);

/* All tours that begin with `count` cities, which are `so_far` long. Those left must each be
 * left for another city: that takes at least `rest`. */
static void search(struct search *s, int count, int so_far, int rest, finder *found)
{
	int last = s->tour[count - 1];

	if (count == cities) {
		if (so_far + distance[last][s->tour[0]] < s->best)
			found(s, so_far + distance[last][s->tour[0]]);
		return;
	}
	for (int city = 1; city < cities; city++) {
		int longer = so_far + distance[last][city];

		if (s->visited[city] || longer + rest - nearest[last] >= s->best)
			continue;
		s->tour[count] = city;
		s->visited[city] = true;
		search(s, count + 1, longer, rest - nearest[last], found);
		s->visited[city] = false;
	}
}

static void search_from(struct search *s, const struct beginning *from, finder *found)
{
	int so_far = 0, rest = 0;

	memset(s->visited, 0, sizeof s->visited);
	for (int at = 0; at <= depth; at++) {
		s->tour[at] = from->tour[at];
		s->visited[s->tour[at]] = true;
		if (at > 0)
			so_far += distance[s->tour[at - 1]][s->tour[at]];
	}
	for (int city = 0; city < cities; city++)
		if (!s->visited[city] || city == s->tour[depth])
			rest += nearest[city];
	search(s, (int)depth + 1, so_far, rest, found);
}

/* Tells the others. */
static void found_together(struct search *s, int length)
{
	jia_lock(0);
	if (length < job->best) {
		job->best = length;
		memcpy(job->tour, s->tour, sizeof s->tour);
	}
	s->best = job->best;
	jia_unlock(0);
}

static void search_together(void)
{
	struct search s;

	for (;;) {
		jia_lock(0);
		long at = job->next;
		if (at < queued)
			job->next++;
		s.best = job->best;
		jia_unlock(0);
		if (at >= queued)
			return;
		if (queue[at].least < s.best)
			search_from(&s, &queue[at], found_together);
	}
}

/* Appends all beginnings with the first `count` cities. */
static void fill_queue(struct search *s, int count, int so_far)
{
	if (count == depth + 1) {
		struct beginning *b = &queue[queued++];

		b->least = so_far;
		for (int at = 0; at < count; at++)
			b->tour[at] = (unsigned char)s->tour[at];
		for (int city = 0; city < cities; city++)
			if (!s->visited[city] || city == s->tour[depth])
				b->least += nearest[city];
		return;
	}
	for (int city = 1; city < cities; city++) {
		if (s->visited[city])
			continue;
		s->tour[count] = city;
		s->visited[city] = true;
		fill_queue(s, count + 1, so_far + distance[s->tour[count - 1]][city]);
		s->visited[city] = false;
	}
}

static int by_promise(const void *left, const void *right)
{
	const struct beginning *a = left, *b = right;

	if (a->least != b->least)
		return a->least < b->least ? -1 : 1;
	return memcmp(a->tour, b->tour, sizeof a->tour);
}

/* Always to the nearest city that is left. */
static void first_tour(int *tour)
{
	bool visited[CITIES] = {true};

	tour[0] = 0;
	for (int at = 1; at < cities; at++) {
		int next = 0;

		for (int city = 1; city < cities; city++)
			if (!visited[city] && (next == 0 || distance[tour[at - 1]][city] <
								distance[tour[at - 1]][next]))
				next = city;
		tour[at] = next;
		visited[next] = true;
	}
}

static void found_alone(struct search *s, int length)
{
	s->best = length;
}

static void compare(void)
{
	struct search s;
	int first[CITIES];
	bool visited[CITIES] = {false};

	for (int at = 0; at < cities; at++)
		visited[job->tour[at]] = true;
	for (int city = 0; city < cities; city++)
		if (!visited[city])
			jia_error("tsp: the tour misses city %d", city);
	first_tour(first);
	s.best = length(first);
	for (long at = 0; at < queued; at++)
		search_from(&s, &queue[at], found_alone);
	if (s.best != job->best || length(job->tour) != job->best)
		jia_error("tsp: the tour is %d long, said to be %d, and %d on one task",
			  length(job->tour), job->best, s.best);
	printf("tsp: the same on one task\n");
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"cities", &cities, 2, CITIES, "how many"},
		{"depth", &depth, 1, CITIES / 8 - 1, "cities of a beginning after the first one"},
		{"seed", &seed, 0, 1 << 30, "where they lie"},
		{0},
	};
	begin(argc, argv, "travelling salesman by branch and bound", options);

	if (depth > cities - 1)
		depth = cities - 1;
	size_t room = 1;
	for (long at = 0; at < depth; at++)
		room *= (size_t)(cities - 1 - at);
	job = (struct job *)jia_alloc1(sizeof *job);
	queue = (struct beginning *)jia_alloc1(room * sizeof *queue);
	place_cities();
	if (jiapid == 0) {
		struct search s = {.visited = {true}};

		fill_queue(&s, 1, 0);
		qsort(queue, (size_t)queued, sizeof *queue, by_promise);
		first_tour(job->tour);
		job->best = length(job->tour);
	}
	queued = (long)room;
	jia_barrier();

	double start = seconds();
	search_together();
	jia_barrier();
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("tsp: %ld cities, length %d, %d tasks: %.3f s\n", cities, job->best,
		       jiahosts, time);
		if (verify)
			compare();
	}
	jia_exit();
	return 0;
}
