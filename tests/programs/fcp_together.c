/* Long messages of FCP II between tasks of one space, where sender and receiver copy at the same
 * time; both are killed at random. The program owns the space, and is its tasks where its first
 * argument begins with "task-".
 *
 * usage: fcp_together WINDOW SEED SECONDS */
#include "check.h"

#include <fcp.h>
#include <limits.h>
#include <pvas.h>

extern char **environ;

/* Tasks 0 and 1 receive, the others send to both. All of them are killed but the first of each. */
enum { RECEIVERS = 2, TASKS = 4, BYTES_MAX = 3 << 20 };

static char self[PATH_MAX];

/* Opens the window. Stores the address of the number of received messages, by task. */
static VCL_window *window_at(const char *where, volatile uint64_t **received)
{
	struct VCL_plan plan = { .fields = VCL_PLAN_MEMBERS, .members = TASKS };
	VCL_window *window;
	CHECK_EQ(VCL_open(where, &plan, &window), 0);
	*received = VCL_memory(window, NULL);
	return window;
}

static FCP_port *join(VCL_window *window, int id)
{
	FCP_port *port;
	/* The last task with this ID may still be ending. */
	while (FCP_alloc(window, id, 0, FCP_PROTOCOL_II, &port))
		usleep(500);
	return port;
}

/* Sends messages of one number each, and overwrites them as soon as they are sent. */
static void send_for_ever(FCP_port *port, unsigned seed)
{
	uint64_t *data = malloc(BYTES_MAX);
	for (uint64_t number = seed;; number++) {
		size_t count = 2 + rand_r(&seed) % (BYTES_MAX / 8 - 2);
		for (size_t i = 0; i < count; i++)
			data[i] = number;
		int sent = FCP_send(port, rand_r(&seed) % RECEIVERS, data, 8 * count, 0.05);
		CHECK(sent == 0 || sent == FCP_EGONE || sent == FCP_EDEAD || sent == FCP_ETIMEOUT);
		memset(data, 0xee, 8 * count);
	}
}

/* Receives, sometimes only the beginning of a message: nothing is written behind the buffer. (A
 * killed sender may have left a part of its message in the buffer.) */
static void receive_for_ever(FCP_port *port, unsigned seed, volatile uint64_t *received)
{
	uint64_t *data = malloc(BYTES_MAX);
	for (;;) {
		size_t room = rand_r(&seed) % 4 ? BYTES_MAX / 8 : 2 + rand_r(&seed) % (BYTES_MAX / 8 - 2);
		memset(data, 0x11, BYTES_MAX);
		int64_t length = FCP_recv(port, NULL, 0, data, 8 * room, NULL, 1);
		if (length == FCP_ETIMEOUT)
			continue;
		CHECK(length > 0);
		size_t count = (size_t)length / 8 < room ? (size_t)length / 8 : room;
		uint64_t number = data[0];
		for (size_t i = 0; i < count; i++)
			CHECK_EQ(data[i], number);
		for (size_t i = room; i < BYTES_MAX / 8; i++)
			CHECK_EQ(data[i], 0x1111111111111111);
		++*received;
	}
}

static int task(int id, const char *where, unsigned seed)
{
	volatile uint64_t *received;
	FCP_port *port = join(window_at(where, &received), id);
	if (id >= RECEIVERS)
		send_for_ever(port, seed);
	receive_for_ever(port, seed, &received[id]);
	return 0;
}

static pid_t start(int pvd, int id, const char *where, unsigned seed)
{
	char name[16], number[16];
	snprintf(name, sizeof name, "task-%d", id);
	snprintf(number, sizeof number, "%u", seed);
	char *argv[] = { "fcp_together", name, (char *)where, number, NULL };
	struct pvas_spawn_attr attr = { .fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGKILL };
	/* A task may still hold the last one with this ID. */
	for (;;) {
		pid_t pid = pvas_spawn(pvd, id, self, argv, environ, &attr);
		if (pid >= 0)
			return pid;
		int error = errno;
		CHECK_EQ(error, EBUSY);
		usleep(500);
	}
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strncmp(argv[1], "task-", 5))
		return task(atoi(argv[1] + 5), argv[2], (unsigned)atoi(argv[3]));
	CHECK_EQ(argc, 4);
	CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	unsigned seed = (unsigned)atoi(argv[2]);
	int pvd = pvas_create(), deaths = 0;
	CHECK(pvd >= 0);
	volatile uint64_t *received;
	window_at(argv[1], &received);
	pid_t pids[TASKS];
	for (int id = 0; id < TASKS; id++)
		pids[id] = start(pvd, id, argv[1], rand_r(&seed));
	for (time_t end = time(NULL) + atoi(argv[3]); time(NULL) < end; deaths++) {
		int id = rand_r(&seed) % 2 * RECEIVERS + 1, status;
		usleep(rand_r(&seed) % 20000);
		kill(pids[id], SIGKILL);
		CHECK_EQ(waitpid(pids[id], &status, 0), pids[id]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		pids[id] = start(pvd, id, argv[1], rand_r(&seed));
	}
	/* A task whose check failed has ended. */
	for (int id = 0; id < TASKS; id++) {
		int status;
		CHECK_EQ(waitpid(pids[id], &status, WNOHANG), 0);
		kill(pids[id], SIGKILL);
		CHECK_EQ(waitpid(pids[id], &status, 0), pids[id]);
	}
	printf("%d deaths, %lu and %lu messages\n", deaths, received[0], received[1]);
	CHECK(deaths > 20 && received[0] > 100);
	return 0;
}
