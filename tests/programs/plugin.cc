// A plug-in with thread-local data that throws on odd numbers.
#include <stdexcept>
#include <string>
#include <vector>

static thread_local std::vector<int> seen;

extern "C" int plugin_work(int n)
{
	seen.push_back(n);
	if (n % 2)
		throw std::runtime_error("odd");
	return seen.back() * 2;
}
