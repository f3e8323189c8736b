/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * argo_latency.cc - the steps of dsm_latency.c with ArgoDSM, for a comparison with the same output.
 *
 *	mpirun -n 2 argo_latency SAMPLES
 *
 * Needs an installed ArgoDSM (argo.hpp, libargo, libargobackend-mpi); no part of Nagaya's build
 * compiles it. Set ARGO_LOAD_SIZE=1, so that a miss fetches one page. Prints a line for each step:
 * its name, tasks, number of samples, and their median, 99th percentile and maximum in ns. The
 * pages and the lock are at the home of node 1, and node 0 measures.
 */
#include <argo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr std::size_t PAGE = 4096, PAGES = 256, MEMORY = 64 << 20;

using Lock = argo::globallock::global_tas_lock;

int me;
std::size_t samples;
std::vector<long> times;

long now_ns()
{
	auto now = std::chrono::steady_clock::now().time_since_epoch();
	return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void report(const char *step)
{
	if (me == 0 && !times.empty()) {
		std::sort(times.begin(), times.end());
		std::printf("%s 2 %zu %ld %ld %ld\n", step, times.size(), times[times.size() / 2],
		            times[times.size() * 99 / 100], times.back());
		std::fflush(stdout);
	}
	times.clear();
}

void pages(const char *step, volatile char *memory, bool writes)
{
	std::vector<std::size_t> order(PAGES);
	std::mt19937 random(1);
	std::iota(order.begin(), order.end(), 0);
	for (std::size_t taken = 0; taken < samples; taken += PAGES) {
		if (me == 1)
			for (std::size_t at = 0; at < PAGES; at++)
				memory[at * PAGE] = static_cast<char>(memory[at * PAGE] + 1);
		argo::barrier();
		std::shuffle(order.begin(), order.end(), random);
		for (std::size_t at = 0; me == 0 && at < PAGES; at++) {
			volatile char *byte = memory + order[at] * PAGE;
			long begin = now_ns();
			if (writes)
				byte[1] = static_cast<char>(at);
			else
				(void)*byte;
			times.push_back(now_ns() - begin);
		}
		argo::barrier();
	}
	report(step);
}

/* One lock again and again, by node 0 only. */
void lock_again(Lock &lock)
{
	for (std::size_t at = 0; me == 0 && at < samples; at++) {
		long begin = now_ns();
		lock.lock();
		times.push_back(now_ns() - begin);
		lock.unlock();
	}
	argo::barrier();
	report("lock-again");
}

void barrier()
{
	for (std::size_t at = 0; at < samples; at++) {
		long begin = now_ns();
		argo::barrier();
		times.push_back(now_ns() - begin);
	}
	report("barrier");
}

} // namespace

int main(int argc, char **argv)
{
	samples = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 2048;
	argo::init(MEMORY, MEMORY);
	me = argo::node_id();
	if (argo::number_of_nodes() != 2 || samples == 0) {
		std::fprintf(stderr, "usage: mpirun -n 2 argo_latency SAMPLES\n");
		return 2;
	}
	/* By default, the second half of the memory is at node 1. */
	char *all = argo::conew_array<char>(MEMORY * 3 / 4);
	char *of_node_1 = all + MEMORY * 5 / 8;
	Lock lock(reinterpret_cast<Lock::internal_field_type *>(of_node_1 + PAGES * PAGE));
	argo::barrier();
	pages("read-miss", of_node_1, false);
	pages("write-miss", of_node_1, true);
	lock_again(lock);
	barrier();
	argo::finalize();
	return 0;
}
