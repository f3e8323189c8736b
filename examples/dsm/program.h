/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * program.h - how the programs here begin and end: options of the command line, a task's
 * share of a range, a clock.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <jia.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* `--name NUMBER`. A table of them ends with one without a name. */
struct option {
	const char *name;
	long       *value; /* holds the default */
	long        least, most;
	const char *meaning;
};

/* `--verify`: run the same on one task, too, and compare. */
static bool verify;

static inline void print_help(const char *program, const char *about, const struct option *options)
{
	printf("%s: %s\n\nusage: mpirun -n TASKS %s [OPTION]...\n", program, about, program);
	for (const struct option *o = options; o->name != NULL; o++)
		printf("  --%-10s N  %s [%ld]\n", o->name, o->meaning, *o->value);
	printf("  --verify        run it on one task, too, and compare\n"
	       "  --help          this text\n");
}

/* Reads the options; writes what is wrong with them into `complaint`, if anything is. */
static inline void read_options(int argc, char **argv, const char *about,
	const struct option *options, char *complaint, size_t size)
{
	for (int at = 1; at < argc; at++) {
		const struct option *o = options;

		if (strcmp(argv[at], "--help") == 0) {
			print_help(argv[0], about, options);
			exit(0);
		}
		if (strcmp(argv[at], "--verify") == 0) {
			verify = true;
			continue;
		}
		while (o->name != NULL &&
		       (strncmp(argv[at], "--", 2) != 0 || strcmp(argv[at] + 2, o->name) != 0))
			o++;
		if (o->name == NULL) {
			snprintf(complaint, size, "%s: no such option; see --help", argv[at]);
			return;
		}
		const char *number = at + 1 < argc ? argv[++at] : "";
		char *end;
		errno = 0;
		long value = strtol(number, &end, 10);
		if (end == number || *end != '\0' || errno != 0 || value < o->least ||
		    value > o->most) {
			snprintf(complaint, size, "--%s wants a number from %ld to %ld, not '%s'",
				 o->name, o->least, o->most, number);
			return;
		}
		*o->value = value;
	}
}

/* Joins the job with the options read. Wrong ones end it, with one line from task 0. */
static inline void begin(int argc, char **argv, const char *about, const struct option *options)
{
	char complaint[256] = "";

	read_options(argc, argv, about, options, complaint, sizeof complaint);
	jia_init(argc, argv);
	if (complaint[0] == '\0')
		return;
	if (jiapid == 0)
		jia_error("%s: %s", argv[0], complaint);
	jia_wait(); /* for task 0, which ends the job instead */
}

/* A range of `count` in equal shares, one a task in their order; the last ones can be smaller
 * or empty. A share has `share(count)` items, this task's are begin to end - 1. */
static inline long share(long count)
{
	return (count + jiahosts - 1) / jiahosts;
}

static inline long share_begin(long count, int task)
{
	long begin = share(count) * task;

	return begin < count ? begin : count;
}

static inline long share_end(long count, int task)
{
	return share_begin(count, task + 1);
}

/* Private memory that is needed. */
static inline void *private_memory(size_t size)
{
	void *memory = calloc(1, size != 0 ? size : 1);

	if (memory == NULL)
		jia_error("no memory for %zu bytes", size);
	return memory;
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A number that depends on `at` and looks like chance: splitmix64, by Steele, Lea, Flood. */
static inline unsigned long chance(unsigned long at)
{
	unsigned long z = (at + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

#endif
