/* What include/fcp.h says, tried from C. Prints one line a failure; exits with how many. */
#include <assert.h>
#include <fcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
#define CHECK(holds)                                                                    \
	do {                                                                            \
		if (!(holds)) {                                                         \
			printf("line %d: %s (%s)\n", __LINE__, #holds, FCP_reason());   \
			failures++;                                                     \
		}                                                                       \
	} while (0)

enum { LONG = 3 << 20 };
static char out[LONG], in[LONG];

/* The window of a child: nothing of the parent's is used but the descriptor. */
static VCL_window *again(int descriptor)
{
	char where[32];
	VCL_window *window = NULL;
	snprintf(where, sizeof where, "fd:%d", descriptor);
	if (VCL_open(where, NULL, &window) != 0)
		_exit(100);
	return window;
}

static void messages(int window_protocol, int here, int there)
{
	struct VCL_plan plan = {.fields = VCL_PLAN_MEMBERS | VCL_PLAN_PROTOCOL,
				.members = 8, .protocol = window_protocol};
	VCL_window *window = NULL;
	FCP_port *port = NULL;
	uint32_t source = 0;
	struct FCP_proc procs[8];
	CHECK(VCL_open(NULL, &plan, &window) == 0);
	CHECK(FCP_alloc(window, 1, 5, here, &port) == 0);
	for (size_t i = 0; i < LONG; i++)
		out[i] = (char)(i * 7 + (i >> 12));

	pid_t child = fork();
	if (child == 0) {
		FCP_port *mine = NULL;
		if (FCP_send(port, 1, "x", 1, 0) != FCP_EFORKED ||
		    FCP_recv(port, NULL, 0, in, 1, NULL, 0) != FCP_EFORKED)
			_exit(101);
		VCL_window *ours = again(VCL_descriptor(window));
		if (FCP_alloc(ours, 1, 5, there, &mine) == 0 && window_protocol == FCP_PROTOCOL_II)
			_exit(102); /* the place is taken */
		FCP_free(mine);
		if (FCP_alloc(ours, 2, 5, there, &mine) != 0)
			_exit(103);
		VCL_close(ours); /* the port keeps it */
		if (FCP_send(mine, 1, "first", 5, -1) != 0 || FCP_send(mine, 1, out, LONG, -1) != 0)
			_exit(104);
		if (FCP_recv(mine, NULL, 0, in, LONG, NULL, 20) != LONG || memcmp(in, out, LONG))
			_exit(105);
		pause();
	}
	uint32_t from[] = {7, 2};
	CHECK(FCP_select(port, from, 2, &source, 20) == 5 && source == 2);
	CHECK(FCP_recv(port, from, 1, in, LONG, NULL, 0) == FCP_ETIMEOUT);
	CHECK(FCP_recv(port, from, 2, in, 2, &source, 20) == 5 && !memcmp(in, "fi", 2));
	CHECK(FCP_recv(port, NULL, 0, in, LONG, &source, 20) == LONG && source == 2);
	CHECK(memcmp(in, out, LONG) == 0);
	CHECK(FCP_procs(window, procs, 8) == 2 && FCP_procs(window, NULL, 0) == 2);
	int other = procs[0].id == 2 ? 0 : 1;
	CHECK(procs[other].pid == child && procs[other].group == 5 && procs[other].lives == 1);
	CHECK(FCP_send(port, 2, out, LONG, 20) == 0);
	CHECK(FCP_send(port, 3, "?", 1, 0) == FCP_EGONE && strstr(FCP_reason(), "FCP_procs"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	CHECK(FCP_procs(window, procs, 8) == 2 && procs[other].lives == 0);
	int sent = 0;
	while (sent == 0)
		sent = FCP_send(port, 2, out, 4096, 20);
	CHECK(sent == FCP_EDEAD);
	FCP_free(port);
	VCL_close(window);
}

struct waiting {
	FCP_port *port;
	int64_t got;
};

static void *wait_long(void *argument)
{
	struct waiting *waiting = argument;
	waiting->got = FCP_recv(waiting->port, NULL, 0, in, LONG, NULL, -1);
	return NULL;
}

static void threads(int window_protocol, int protocol)
{
	struct VCL_plan plan = {.fields = VCL_PLAN_MEMBERS | VCL_PLAN_PLAIN | VCL_PLAN_PROTOCOL,
				.members = 2, .plain = 100, .protocol = window_protocol};
	VCL_window *window = NULL;
	FCP_port *port = NULL;
	CHECK(VCL_open("", &plan, &window) == 0);
	CHECK(FCP_alloc(window, 7, 0, protocol, &port) == 0);
	struct waiting waiting = {.port = port};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, wait_long, &waiting) == 0);
	usleep(50000);
	CHECK(FCP_send(port, 7, "x", 1, 0) == FCP_EBUSY);
	CHECK(FCP_interrupt(port) == 0);
	pthread_join(thread, NULL);
	CHECK(waiting.got == FCP_ETIMEOUT);

	size_t size = 0;
	char *memory = VCL_memory(window, &size);
	CHECK(memory != NULL && size == 4096);
	uint32_t *flag = (uint32_t *)(memory + 64);
	CHECK(VCL_test_and_set(flag) == 0 && VCL_test_and_set(flag) == 1);
	VCL_clear(flag);
	CHECK(VCL_test_and_set(flag) == 0);
	uint64_t *lock = (uint64_t *)memory, local = 0;
	pid_t child = fork();
	if (child == 0) {
		VCL_window *ours = again(VCL_descriptor(window));
		FCP_port *mine = NULL;
		if (FCP_alloc(ours, 8, 0, protocol, &mine) != 0)
			_exit(100);
		_exit(VCL_lock(mine, VCL_memory(ours, NULL), -1)); /* with the lock */
	}
	int status;
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(VCL_lock(port, lock, 5) == 1);
	CHECK(VCL_lock(port, lock, 0.01) == FCP_ETIMEOUT);
	CHECK(VCL_unlock(port, lock, 1) == 0 && VCL_lock(port, lock, 0) == 1);
	CHECK(VCL_unlock(port, lock, 0) == 0 && VCL_lock(port, lock, 0) == 0);
	CHECK(VCL_unlock(port, lock, 0) == 0 && VCL_unlock(port, lock, 0) == FCP_EINVAL);
	CHECK(VCL_lock(port, &local, 0) == FCP_EINVAL && VCL_lock(port, lock + 512, 0) == FCP_EINVAL);
	FCP_free(port);
	VCL_close(window);
}

static void refusals(const char *directory)
{
	VCL_window *window = NULL, *same = NULL;
	FCP_port *port = NULL;
	struct VCL_plan plan = {.fields = VCL_PLAN_MEMBERS, .members = 0};
	CHECK(VCL_open(NULL, NULL, &window) == FCP_EINVAL);
	CHECK(VCL_open(NULL, &plan, &window) == FCP_EWINDOW);
	plan.fields = 1 << 20;
	CHECK(VCL_open(NULL, &plan, &window) == FCP_EINVAL);
	plan = (struct VCL_plan){.fields = VCL_PLAN_PROTOCOL, .protocol = 9};
	CHECK(VCL_open(NULL, &plan, &window) == FCP_EINVAL && strstr(FCP_reason(), "9 is no"));
	plan = (struct VCL_plan){.fields = VCL_PLAN_MESSAGES, .messages = (size_t)-1};
	CHECK(VCL_open(NULL, &plan, &window) == FCP_EINVAL);
	CHECK(VCL_open("fd:x", NULL, &window) == FCP_EINVAL);
	CHECK(VCL_open("fd:999", NULL, &window) == FCP_EINVAL);
	CHECK(VCL_open("/nowhere/window", NULL, &window) == FCP_EWINDOW);
	CHECK(VCL_open("/dev/null", NULL, &window) == FCP_EWINDOW);
	CHECK(window == NULL && VCL_open(NULL, &plan, NULL) == FCP_EINVAL);
	CHECK(VCL_descriptor(NULL) == FCP_EINVAL && VCL_memory(NULL, NULL) == NULL);
	CHECK(FCP_procs(NULL, NULL, 0) == FCP_EINVAL);

	char path[4096];
	snprintf(path, sizeof path, "%s/window", directory);
	plan = (struct VCL_plan){.fields = VCL_PLAN_MEMBERS, .members = 4};
	CHECK(VCL_open(path, &plan, &window) == 0 && VCL_open(path, NULL, &same) == 0);
	VCL_close(same);
	plan.members = 5;
	CHECK(VCL_open(path, &plan, &same) == FCP_EWINDOW);
	CHECK(FCP_alloc(NULL, 1, 0, 0, &port) == FCP_EINVAL);
	CHECK(FCP_alloc(window, 1, 0, 0, NULL) == FCP_EINVAL);
	CHECK(FCP_alloc(window, 1, 0, 77, &port) == FCP_EINVAL);
	CHECK(FCP_alloc(window, 1, 0, FCP_PROTOCOL_FCP, &port) == FCP_EWINDOW);
	CHECK(FCP_alloc(window, 1, 0, FCP_PROTOCOL_II, &port) == 0);
	CHECK(FCP_alloc(window, 5, 0, FCP_PROTOCOL_II, &port) == FCP_EWINDOW);
	CHECK(strstr(FCP_reason(), "place 1 is taken") != NULL);
	CHECK(FCP_send(NULL, 1, "", 0, 0) == FCP_EINVAL);
	CHECK(FCP_send(port, 1, NULL, 4, 0) == FCP_EINVAL);
	CHECK(FCP_send(port, 1, NULL, 0, 1e300) == FCP_EINVAL);
	CHECK(FCP_send(port, 1, NULL, 0, 1e18) == 0);
	CHECK(FCP_recv(port, NULL, 1, in, 1, NULL, 0) == FCP_EINVAL);
	CHECK(FCP_recv(port, NULL, 0, NULL, 1, NULL, 0) == FCP_EINVAL);
	CHECK(FCP_recv(port, NULL, 0, NULL, 0, NULL, 0) == 0);
	CHECK(FCP_recv(port, NULL, 0, in, 1, NULL, 0.01) == FCP_ETIMEOUT);
	FCP_free(port);
	FCP_free(NULL);
	VCL_close(window);
	VCL_close(NULL);
	for (int error = FCP_EBUSY; error < 0; error++)
		CHECK(strlen(FCP_strerror(error)) > 10);
	CHECK(!strcmp(FCP_strerror(0), "no error") && strstr(FCP_strerror(-99), "not an error of"));
}

int main(int argc, char **argv)
{
	alarm(120);
	assert(argc == 2);
	static_assert(sizeof(struct VCL_plan) == 32 && sizeof(struct FCP_proc) == 32, "ABI");
	messages(FCP_PROTOCOL_II, 0, FCP_PROTOCOL_II);
	messages(FCP_PROTOCOL_FCP, FCP_PROTOCOL_FCP, FCP_PROTOCOL_PLUS);
	threads(FCP_PROTOCOL_II, 0);
	threads(FCP_PROTOCOL_FCP, FCP_PROTOCOL_FCP);
	threads(FCP_PROTOCOL_FCP, FCP_PROTOCOL_PLUS);
	refusals(argv[1]);
	return failures;
}
