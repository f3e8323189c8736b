// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Tests pvas.hpp: without arguments the owner of a space, whose tasks are this program with the
// name of a case. Prints "right" at the end.

#include <pvas.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <numeric>

#if __cplusplus >= 202002L
#include <span>
#endif

static void check(bool holds, int line, const char *condition)
{
	if (holds)
		return;
	std::fprintf(stderr, "line %d: %s\n", line, condition);
	std::exit(1);
}

#define CHECK(condition) check((condition), __LINE__, #condition)

// Runs `call`, which must throw this error, and returns its text.
template <typename Call> static std::string thrown(std::errc code, int line, Call call)
{
	try {
		call();
	} catch (const std::system_error &error) {
		if (error.code() == code)
			return error.what();
		std::cerr << "line " << line << ": threw " << error.what() << "\n";
		std::exit(1);
	}
	std::cerr << "line " << line << ": threw nothing\n";
	std::exit(1);
}

template <typename Call> static bool is_out_of_range(Call call)
{
	try {
		call();
	} catch (const std::out_of_range &) {
		return true;
	}
	return false;
}

struct pair {
	double x;
	long n;
};

// A task: exports its memory, and ends when the owner has written a 1 into it.
static int field()
{
	pvas::here me;
	std::vector<double> field(1000);
	std::iota(field.begin(), field.end(), me.id());
	std::array<pair, 2> pairs = {{{0.5, 1}, {1.5, 2}}};
	pvas::exported one = pvas::export_view("field", field);
	pvas::exported two = pvas::export_view("pairs", pairs);
	{
		std::optional<pvas::exported> three = pvas::export_view("short", field.data(), 3);
		CHECK(me.import_view<double>(me.id(), "short", pvas::timeout(0)).size() == 3);
		pvas::exported moved = std::move(*three);
		three.reset();
		CHECK(me.import_view<double>(me.id(), "short", pvas::timeout(0)).size() == 3);
	}
	thrown(std::errc::no_such_file_or_directory, __LINE__, [&] {
		me.import_view<double>(me.id(), "short", pvas::timeout(0));
	});
	CHECK(me.id_of(field.data()) == me.id() && me.pid(me.id()) == getpid());
	CHECK(me.id_of_pid(getpid()) == me.id());
	auto area = me.export_area(me.id());
	CHECK(area.size() == PVAS_EXPORT_USER);
	auto *go = reinterpret_cast<std::atomic<int> *>(area.data());
	pvas::exported ready = pvas::export_view("ready", go, 1);
	while (go->load() == 0)
		usleep(1000);
	return field[7] == -1.0 ? 3 : 4;
}

static void uses_memory(pvas::space &space, const char *self)
{
	pvas::spawn_options options;
	options.id = 4;
	options.pdeathsig = SIGKILL; // a failed check ends this process
	options.segment_size = std::size_t(1) << 30;
	pvas::task task = space.spawn({self, "field"}, options);
	CHECK(task.id() == 4 && space.pid(4) == task.pid() && space.ntasks() == 1);
	auto field = space.import_view<double>(4, "field"); // waits until it is there
	CHECK(field.size() == 1000 && field.size_bytes() == 8000 && field[7] == 11.0);
	CHECK(std::accumulate(field.begin(), field.end(), 0.0) == 499500 + 4000);
	CHECK(space.id_of(field.data()) == 4 && space.segment(4).size() == space.info().segment_size);
	pvas::view<const double> constant = field;
	CHECK(constant.subview(998, 2)[1] == 1003.0 && constant.at(0) == constant[0]);
	auto pairs = space.import_view<pair>(4, "pairs");
	CHECK(pairs.size() == 2 && pairs[1].x == 1.5 && pairs[1].n == 2);
#if __cplusplus >= 202002L
	std::span<double> span = space.import_view<double>(4, "field");
	CHECK(span.size() == 1000 && std::ranges::max(constant) == 1003.0);
#endif
	thrown(std::errc::invalid_argument, __LINE__, [&] { space.import_view<pair[3]>(4, "pairs"); });
	thrown(std::errc::timed_out, __LINE__, [&] {
		space.import_view<double>(4, "never", pvas::timeout(20));
	});
	CHECK(is_out_of_range([&] { constant.at(1000); }));
	CHECK(is_out_of_range([&] { constant.subview(999, 2); }));
	CHECK(is_out_of_range([&] { constant.subview(1001, 0); }));
	CHECK(!task.try_wait());
	field[7] = -1.0;
	space.import_view<std::atomic<int>>(4, "ready")[0] = 1;
	CHECK(task.wait().code() == 3 && task.pid() == -1 && space.ntasks() == 0);
	thrown(std::errc::no_such_process, __LINE__, [&] { space.import_view<double>(4, "field"); });
	thrown(std::errc::no_child_process, __LINE__, [&] { task.wait(); });
}

static void sets_attributes(pvas::space &space)
{
	int ends[2];
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	pvas::spawn_options options;
	options.env = {{"WORD=given"}};
	options.cwd = "/";
	options.fds = {{{ends[1], 1}, {2, 2}}};
	pvas::task shell = space.spawn({"/bin/sh", "-c", "echo $WORD; pwd; exit 7"}, options);
	close(ends[1]);
	char text[100] = {};
	std::size_t length = 0;
	for (ssize_t n; (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
		length += static_cast<std::size_t>(n);
	close(ends[0]);
	CHECK(std::strcmp(text, "given\n/\n") == 0 && shell.wait().code() == 7);
	options.fds = std::vector<std::pair<int, int>>();
	pvas::task nothing = space.spawn({"/bin/sh", "-c", "test ! -e /proc/self/fd/1"}, options);
	CHECK(nothing.wait().success());
}

static void ends_tasks(pvas::space &space)
{
	pid_t pid;
	{
		pvas::task forgotten = space.spawn({"/bin/sleep", "600"});
		pid = forgotten.pid();
		pvas::task moved = std::move(forgotten);
		CHECK(forgotten.pid() == -1 && moved.pid() == pid);
		forgotten = std::move(moved);
		CHECK(forgotten.pid() == pid && kill(pid, 0) == 0);
	}
	CHECK(waitpid(pid, nullptr, 0) < 0 && errno == ECHILD);
	pvas::task killed = space.spawn({"/bin/sleep", "600"});
	killed.kill(SIGTERM);
	CHECK(killed.wait().signal() == SIGTERM);
	{
		pvas::space other;
		pid = other.spawn({"/bin/sleep", "600"}).release();
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void throws(pvas::space &space)
{
	auto text = thrown(std::errc::no_such_file_or_directory, __LINE__, [&] {
		(void)space.spawn({"./not-there"});
	});
	CHECK(text.find("not-there") != std::string::npos);
	thrown(std::errc::no_such_process, __LINE__, [] { pvas::here me; });
	pvas::space_options options;
	options.segment_size = 12345;
	thrown(std::errc::invalid_argument, __LINE__, [&] { pvas::space bad(options); });
	options.segment_size = std::size_t(1) << 30;
	options.max_tasks = 2;
	pvas::space small(options);
	CHECK(small.info().segment_size == std::size_t(1) << 30 && small.info().max_tasks == 2);
	pvas::space moved = std::move(small);
	thrown(std::errc::invalid_argument, __LINE__, [&] { moved.segment(2); });
	moved = pvas::space(options);
	moved.reset();
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return field();
	pvas::space space;
	uses_memory(space, argv[0]);
	sets_attributes(space);
	ends_tasks(space);
	throws(space);
	std::cout << "right\n";
	return 0;
}
