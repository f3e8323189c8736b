// An OpenMP program: exceptions thrown and caught inside parallel regions, tasks, reductions,
// thread-private data, and a plug-in that is opened at run time and throws.
#include <cmath>
#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static thread_local std::string mine = "fresh";
static int counter;
#pragma omp threadprivate(counter)

static void fail(const char *what)
{
	std::fprintf(stderr, "not so: %s\n", what);
	std::_Exit(1);
}

static long thrower(long n, int depth)
{
	if (depth > 0) {
		std::unique_ptr<int[]> destroyed_while_unwinding(new int[100]());
		return thrower(n, depth - 1) + destroyed_while_unwinding[0] * 0;
	}
	if (n % 3 == 0)
		throw std::out_of_range(std::to_string(n));
	return n;
}

static long fibonacci(int n)
{
	if (n < 2)
		return n;
	long a, b;
#pragma omp task shared(a) if (n > 12)
	a = fibonacci(n - 1);
	b = fibonacci(n - 2);
#pragma omp taskwait
	return a + b;
}

int main(int, char **argv)
{
	omp_set_num_threads(4);

	// Exceptions in every thread at once.
	long sum = 0, caught = 0;
#pragma omp parallel for reduction(+ : sum, caught) schedule(dynamic, 7)
	for (long n = 0; n < 6000; n++) {
		try {
			sum += thrower(n, n % 10);
		} catch (const std::out_of_range &error) {
			caught += std::stol(error.what()) == n;
		}
	}
	if (sum != 12000000 || caught != 2000)
		fail("exceptions in a parallel region");

	// Thread-local and thread-private data keep their values from region to region.
#pragma omp parallel
	{
		if (mine != "fresh")
			fail("thread_local is initialised in each thread");
		mine = "thread " + std::to_string(omp_get_thread_num());
		counter = omp_get_thread_num() + 100;
	}
#pragma omp parallel
	if (counter != omp_get_thread_num() + 100 ||
	    mine != "thread " + std::to_string(omp_get_thread_num()))
		fail("thread-private data");

	long f = 0;
#pragma omp parallel
#pragma omp single
	f = fibonacci(22);
	if (f != 17711)
		fail("tasks");

	std::vector<double> x(1 << 20);
	double norm = 0;
#pragma omp parallel for simd reduction(+ : norm)
	for (std::size_t i = 0; i < x.size(); i++) {
		x[i] = std::sin(0.001 * i);
		norm += x[i] * x[i];
	}
	if (std::fabs(norm / x.size() - 0.5) > 0.01)
		fail("reduction");

	// A plug-in that throws, used by all threads, opened and closed again and again.
	for (int round = 0; round < 20; round++) {
		void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		if (!plugin)
			fail(dlerror());
		auto work = reinterpret_cast<int (*)(int)>(dlsym(plugin, "plugin_work"));
		int thrown = 0;
#pragma omp parallel for reduction(+ : thrown)
		for (int n = 0; n < 400; n++) {
			try {
				if (work(n) != 2 * n)
					fail("the plug-in's result");
			} catch (const std::runtime_error &error) {
				thrown += std::string(error.what()) == "odd";
			}
		}
		if (thrown != 200)
			fail("exceptions from a plug-in");
		// libgomp's threads hold the plug-in's thread-local data: closing may keep it.
		dlclose(plugin);
	}

	// Exceptions carried from thread to thread.
	std::exception_ptr carried;
	std::thread([&] {
		try {
			thrower(3, 5);
		} catch (...) {
			carried = std::current_exception();
		}
	}).join();
	try {
		std::rethrow_exception(carried);
	} catch (const std::exception &error) {
		std::printf("carried %s\n", error.what());
	}
	std::map<int, std::string> map;
	for (int i = 0; i < 100000; i++)
		map[i * 7919 % 100003] = std::to_string(i);
	std::printf("%zu right\n", map.size());
}
