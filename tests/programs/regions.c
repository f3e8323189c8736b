/* Tasks that map one file at one address outside their segments, as PMIx and hwloc do.
 *
 * usage: regions FILE TASKS ADDRESS [die]
 * Each task is started once with the same arguments; they meet in FILE. With `die`, all
 * but one are killed while the file is mapped. */
#include "check.h"

#include <stdatomic.h>

#define SIZE (1 << 20)

struct shared {
	_Atomic int arrived[16], ranks;
	void *self; /* what such files are for */
	_Atomic int killed;
};

static int fd, tasks;
static char *wanted, other_path[4096];

static void meet(struct shared *shared, int point)
{
	shared->arrived[point]++;
	while (shared->arrived[point] < tasks) {
		check_parent();
		usleep(100);
	}
}

static void *map(int file, size_t size, int prot, int flags)
{
	return mmap(wanted, size, prot, MAP_SHARED | flags, file, 0);
}

static int open_other(void)
{
	int other = open(other_path, O_RDWR | O_CREAT, 0600);
	CHECK(other >= 0);
	CHECK(ftruncate(other, SIZE) == 0);
	return other;
}

/* Waits until no task has the address any more, which the last unmapping causes. */
static void until_free(int other)
{
	for (double end = check_seconds() + 20; check_seconds() < end; usleep(1000)) {
		void *at = map(other, SIZE, PROT_READ, 0);
		CHECK(at != MAP_FAILED);
		if (at == wanted)
			return;
		CHECK(munmap(at, SIZE) == 0);
	}
	CHECK(!"the address is free again");
}

static void outlive(struct shared *shared, int rank)
{
	if (rank) {
		shared->killed++;
		kill(getpid(), SIGKILL);
	}
	while (shared->killed < tasks - 1)
		usleep(100);
	usleep(200 * 1000); /* for the others' memory to go */
	CHECK(shared->self == wanted);
	int other = open_other();
	CHECK(munmap(wanted, SIZE) == 0);
	until_free(other);
	puts("outlived");
}

int main(int argc, char **argv)
{
	CHECK(argc >= 4);
	tasks = atoi(argv[2]);
	wanted = (char *)strtoul(argv[3], 0, 16);
	snprintf(other_path, sizeof other_path, "%s.other", argv[1]);
	fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0);
	CHECK(ftruncate(fd, SIZE) == 0);

	struct shared *shared = map(fd, SIZE, PROT_READ | PROT_WRITE, 0);
	CHECK(shared == (void *)wanted);
	shared->self = shared;
	int rank = shared->ranks++;
	meet(shared, 0);
	CHECK(shared->self == shared);
	if (argc > 4) {
		outlive(shared, rank);
		return 0;
	}

	/* The address is taken, for ourselves too. */
	void *again = map(fd, SIZE, PROT_READ, 0);
	CHECK(again != MAP_FAILED && again != wanted);
	CHECK(munmap(again, SIZE) == 0);
	CHECK_FAILS(map(fd, SIZE, PROT_READ, MAP_FIXED_NOREPLACE), EEXIST);
	int other = open_other();
	void *elsewhere = map(other, SIZE, PROT_READ, 0);
	CHECK(elsewhere != MAP_FAILED && elsewhere != wanted);
	CHECK(munmap(elsewhere, SIZE) == 0);
	CHECK_FAILS(map(other, SIZE, PROT_READ, MAP_FIXED_NOREPLACE), EEXIST);

	/* A forked child has what its parent has, and may let go of it. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(shared->self == shared);
		CHECK(munmap(shared, SIZE) == 0);
		unsigned char vec;
		CHECK_FAILS(mincore(shared, 1, &vec), ENOMEM);
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	meet(shared, 1);

	/* One after the other leaves and comes back; the others do not notice. */
	for (int round = 0; round < 200; round++) {
		CHECK(shared->self == wanted);
		if ((round + rank) % tasks == 0)
			continue;
		CHECK(munmap(shared, SIZE) == 0);
		CHECK(map(fd, SIZE, round % 2 ? PROT_READ : PROT_READ | PROT_WRITE, 0) == wanted);
	}
	meet(shared, 2);
	/* A descriptor that may not write gives no right to. */
	CHECK(munmap(shared, SIZE) == 0);
	int reader = open(argv[1], O_RDONLY);
	CHECK(reader >= 0);
	CHECK_FAILS(map(reader, SIZE, PROT_READ | PROT_WRITE, 0), EACCES);
	CHECK(map(reader, SIZE, PROT_READ, MAP_FIXED_NOREPLACE) == wanted);
	CHECK(munmap(shared, SIZE) == 0);
	CHECK(map(fd, SIZE, PROT_READ | PROT_WRITE, 0) == wanted);
	meet(shared, 3);

	CHECK(munmap(shared, SIZE) == 0);
	until_free(other);
	puts("shared");
	return 0;
}
