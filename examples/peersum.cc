/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * peersum.cc - peersum.c in C++, by pvas.hpp, and as a program that starts its own tasks.
 *
 *     ./peersum_cc [TASKS [ELEMENTS]]
 *
 * Each task exports a vector of doubles, and adds up those of all tasks in place: nothing is
 * copied. The program itself owns the space. It waits until all tasks have read all vectors, and
 * lets them end then: a task's memory goes when the task ends.
 */
#include <pvas.hpp>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

/* The head of each task's export area, which is zero at the task's start. */
struct progress {
	std::atomic<int> has_read; /* the task sets it: it has read all vectors */
	std::atomic<int> may_end;  /* the owner sets it */
};

static constexpr auto limit = std::chrono::seconds(60);

static progress &progress_of(const pvas::space_view &space, int id)
{
	return *reinterpret_cast<progress *>(space.export_area(id).data());
}

static void pause_shortly()
{
	std::this_thread::sleep_for(std::chrono::microseconds(100));
}

static int task(int tasks, std::size_t elements)
{
	pvas::here me;
	std::vector<double> mine(elements);
	std::iota(mine.begin(), mine.end(), me.id());
	pvas::exported name = pvas::export_view("peersum", mine);

	int wrong = 0;
	for (int k = 0; k < tasks; k++) {
		int peer = (me.id() + k) % tasks; /* they do not all read the same one */
		auto n = static_cast<double>(elements);
		auto theirs = me.import_view<const double>(peer, "peersum", limit);
		double sum = std::accumulate(theirs.begin(), theirs.end(), 0.0);
		if (theirs.size() != elements || sum != peer * n + n * (n - 1) / 2) {
			std::cerr << "peersum: the vector of task " << peer << " sums to " << sum << "\n";
			wrong = 1;
		}
	}
	progress &own = progress_of(me, me.id());
	own.has_read = 1;
	while (own.may_end == 0)
		pause_shortly();
	return wrong;
}

static int owner(const std::string &self, int tasks, std::size_t elements)
{
	pvas::space space;
	std::vector<pvas::task> children;
	for (int id = 0; id < tasks; id++) {
		pvas::spawn_options options;
		options.id = id;
		options.pdeathsig = SIGKILL; /* no task survives this program */
		children.push_back(space.spawn(
			{self, "task", std::to_string(tasks), std::to_string(elements)}, options));
	}
	for (int id = 0; id < tasks; id++) {
		while (progress_of(space, id).has_read == 0) {
			if (children[static_cast<std::size_t>(id)].try_wait()) {
				std::cerr << "peersum: a task ended too early\n";
				return 1;
			}
			pause_shortly();
		}
	}
	for (int id = 0; id < tasks; id++)
		progress_of(space, id).may_end = 1;
	int failed = 0;
	for (pvas::task &child : children)
		failed += !child.wait().success();
	if (failed == 0)
		std::cout << tasks << " tasks: each added up " << tasks << " vectors of " << elements
		          << " doubles in place\n";
	return failed != 0;
}

int main(int argc, char **argv)
try {
	bool is_task = argc > 1 && std::string(argv[1]) == "task";
	char **arguments = argv + (is_task ? 2 : 1);
	int tasks = arguments[0] ? std::atoi(arguments[0]) : 4;
	long long elements = arguments[0] && arguments[1] ? std::atoll(arguments[1]) : 1000000;
	if (tasks < 1 || tasks > 1000 || elements < 1 || elements > 100000000) {
		std::cerr << "peersum: 1 to 1000 tasks, 1 to 100000000 elements\n";
		return 1;
	}
	auto n = static_cast<std::size_t>(elements);
	return is_task ? task(tasks, n) : owner("/proc/self/exe", tasks, n);
} catch (const std::exception &error) {
	std::cerr << "peersum: " << error.what() << "\n";
	return 1;
}
