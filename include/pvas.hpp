/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas.hpp - pvas.h for C++17 and newer: spaces, tasks and exported names as objects that
 * release themselves, memory of other tasks as typed views, and errors as exceptions.
 *
 *     pvas::space space;
 *     pvas::task worker = space.spawn({"./worker", "7"});
 *     pvas::view<double> field = space.import_view<double>(worker.id(), "field");
 *     double sum = std::accumulate(field.begin(), field.end(), 0.0);
 *
 * and in the worker:
 *
 *     std::vector<double> field(1000);
 *     pvas::exported name = pvas::export_view("field", field);
 *     pvas::here me;
 *
 * Failures throw std::system_error: its code is the errno of the C call, in the generic category
 * (so that it compares with std::errc), and its text begins with that of pvas_error(). A view does
 * not own memory: it is valid as long as the exporting task lives and keeps the memory. After that
 * an access raises SIGSEGV, so let tasks meet before they end, see pvas(7).
 *
 * pvas_fork() has no class here: it returns twice, as vfork(2) does, and must not return from the
 * function that calls it. Use space::spawn().
 *
 * Header only. Link with -lpvas (pkg-config pvas).
 */
#ifndef PVAS_HPP
#define PVAS_HPP

#include <pvas.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace pvas {

/* ---- errors and times ----------------------------------------------------------- */

/* A time limit: zero does not wait, `forever` waits without limit. */
using timeout = std::chrono::milliseconds;
inline constexpr timeout forever = timeout::max();

namespace detail {

[[noreturn]] inline void fail(int number, const std::string &text)
{
	throw std::system_error(number, std::generic_category(), text);
}

/* The last failure of this thread. */
[[noreturn]] inline void fail()
{
	int number = errno;
	fail(number, pvas_error());
}

/* The result of a call that returns -1 on error. */
inline int check(int result)
{
	if (result < 0)
		fail();
	return result;
}

inline int milliseconds(timeout limit)
{
	constexpr timeout zero(0), most(std::numeric_limits<int>::max());
	if (limit == forever)
		return -1;
	return static_cast<int>((limit < zero ? zero : limit < most ? limit : most).count());
}

} /* namespace detail */

/* ---- views ---------------------------------------------------------------------- */

/* `size` elements at `data`, which belong to a task. The same type in every C++ standard; it
 * converts to std::span, of which it has the interface's first part. */
template <typename T> class view {
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using iterator = T *;

	constexpr view() noexcept = default;
	constexpr view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

	/* A view of const elements, of a view of others. */
	template <typename U, typename = std::enable_if_t<std::is_same_v<const U, T>>>
	constexpr view(const view<U> &other) noexcept : data_(other.data()), size_(other.size())
	{
	}

	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr T &operator[](std::size_t i) const { return data_[i]; }

	/* The same element, or std::out_of_range. */
	constexpr T &at(std::size_t i) const
	{
		if (i >= size_)
			throw std::out_of_range("pvas::view::at");
		return data_[i];
	}

	/* `count` elements from number `first` on, or std::out_of_range. */
	constexpr view subview(std::size_t first, std::size_t count) const
	{
		if (first > size_ || count > size_ - first)
			throw std::out_of_range("pvas::view::subview");
		return view(data_ + first, count);
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

/* ---- spaces ---------------------------------------------------------------------- */

/* A space as its owner and its tasks use it; does not own it. IDs name tasks. */
class space_view {
public:
	/* The space with this descriptor; PVAS_SELF: that of the calling task. */
	explicit space_view(int pvd) noexcept : pvd_(pvd) {}

	int descriptor() const noexcept { return pvd_; }

	/* The memory that task `id` exports under `name`; waits for the name. Throws
	 * std::errc::no_such_file_or_directory (not there, and the limit is zero), timed_out,
	 * no_such_process (the task ended), interrupted (by a signal handler), and
	 * invalid_argument if the memory is no whole number of aligned elements. */
	template <typename T>
	view<T> import_view(int id, const std::string &name, timeout limit = forever) const
	{
		static_assert(std::is_trivially_copyable_v<T>,
		              "tasks share memory, not C++ objects with owners: T must be "
		              "trivially copyable");
		void *address = nullptr;
		std::size_t size = 0;
		detail::check(pvas_import(pvd_, id, name.c_str(), &address, &size,
		                          detail::milliseconds(limit)));
		if (size % sizeof(T) != 0 || reinterpret_cast<std::uintptr_t>(address) % alignof(T))
			detail::fail(EINVAL, "'" + name + "' of task " + std::to_string(id) + " has " +
			                             std::to_string(size) +
			                             " bytes, not a whole number of aligned elements of " +
			                             std::to_string(sizeof(T)) + " bytes");
		return view<T>(static_cast<T *>(address), size / sizeof(T));
	}

	/* The program's own half of the export area of `id`, PVAS_EXPORT_USER bytes. */
	view<std::byte> export_area(int id) const
	{
		void *address = pvas_export_area(pvd_, id);
		if (address == nullptr)
			detail::fail();
		return view<std::byte>(static_cast<std::byte *>(address), PVAS_EXPORT_USER);
	}

	/* The whole segment of `id`. The address follows from the ID; no task need live there. */
	view<std::byte> segment(int id) const
	{
		void *address = pvas_segment(pvd_, id);
		if (address == nullptr)
			detail::fail();
		return view<std::byte>(static_cast<std::byte *>(address), info().segment_size);
	}

	pvas_space_info info() const
	{
		pvas_space_info found{};
		detail::check(pvas_getspace(pvd_, &found));
		return found;
	}

	/* The number of tasks that live. */
	int ntasks() const { return detail::check(pvas_ntasks(pvd_)); }

	/* The PID of the living task `id`, and the ID of the living task with this PID. */
	pid_t pid(int id) const { return detail::check(pvas_getpid(pvd_, id)); }
	int id_of_pid(pid_t pid) const { return detail::check(pvas_id_of_pid(pvd_, pid)); }

	/* The ID of the segment that an address lies in; the domain of an ID, 0 is the owner's. */
	int id_of(const void *address) const { return detail::check(pvas_id_of(pvd_, address)); }
	int domain_of(int id) const { return detail::check(pvas_domain_of(pvd_, id)); }

protected:
	int pvd_;
};

/* The calling task. */
class here : public space_view {
public:
	/* Throws std::errc::no_such_process if the caller is no task. */
	here() : space_view(PVAS_SELF), id_(detail::check(pvas_getid())) {}

	int id() const noexcept { return id_; }

private:
	int id_;
};

/* An exported name: the destructor takes it back. */
class exported {
public:
	exported(std::string name, const void *address, std::size_t size) : name_(std::move(name))
	{
		detail::check(pvas_export(name_.c_str(), address, size));
	}
	exported(exported &&other) noexcept : name_(std::exchange(other.name_, {})) {}
	exported &operator=(exported &&other) noexcept
	{
		exported(std::move(other)).name_.swap(name_);
		return *this;
	}
	~exported() { reset(); }

	const std::string &name() const noexcept { return name_; }

	/* Takes the name back now. */
	void reset() noexcept
	{
		if (!name_.empty())
			pvas_unexport(name_.c_str());
		name_.clear();
	}

	/* Leaves the name exported until the task ends. */
	void release() noexcept { name_.clear(); }

private:
	std::string name_;
};

/* Exports `size` elements at `data` under `name`. The caller keeps them there as long as others
 * use them. */
template <typename T>
[[nodiscard]] exported export_view(std::string name, const T *data, std::size_t size)
{
	static_assert(std::is_trivially_copyable_v<T>, "T must be trivially copyable");
	return exported(std::move(name), data, size * sizeof(T));
}

/* Exports the elements of a container whose memory is contiguous, such as std::vector,
 * std::array or std::span. It must not reallocate as long as others use them. */
template <typename Container>
[[nodiscard]] exported export_view(std::string name, Container &container)
{
	return export_view(std::move(name), container.data(), container.size());
}

/* ---- tasks ----------------------------------------------------------------------- */

/* How a task ended. */
class exit_status {
public:
	explicit exit_status(int status) noexcept : status_(status) {}

	/* The status as of waitpid(2). */
	int raw() const noexcept { return status_; }
	/* The exit status, if it called exit. */
	std::optional<int> code() const
	{
		return WIFEXITED(status_) ? std::optional<int>(WEXITSTATUS(status_)) : std::nullopt;
	}
	/* The signal that ended it, if one did. */
	std::optional<int> signal() const
	{
		return WIFSIGNALED(status_) ? std::optional<int>(WTERMSIG(status_)) : std::nullopt;
	}
	bool success() const noexcept { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

private:
	int status_;
};

/* A task that this process has started. The destructor kills a task that was neither waited for
 * nor released, and waits for it. */
class task {
public:
	task(int id, pid_t pid) noexcept : id_(id), pid_(pid) {}
	task(task &&other) noexcept : id_(other.id_), pid_(std::exchange(other.pid_, -1)) {}
	task &operator=(task &&other) noexcept
	{
		task moved(std::move(other));
		std::swap(id_, moved.id_);
		std::swap(pid_, moved.pid_);
		return *this;
	}
	~task() { end(); }

	int id() const noexcept { return id_; }

	/* Its PID; -1 after wait() or release(). */
	pid_t pid() const noexcept { return pid_; }

	/* Waits for its end. */
	exit_status wait() { return *wait(0); }

	/* Returns how it ended, or nothing if it still runs. */
	std::optional<exit_status> try_wait() { return wait(WNOHANG); }

	/* Sends a signal. */
	void kill(int signal = SIGKILL) const
	{
		if (pid_ < 0)
			detail::fail(ESRCH, "task " + std::to_string(id_) + " has ended");
		if (::kill(pid_, signal) != 0)
			detail::fail(errno, "task " + std::to_string(id_) + ": kill");
	}

	/* Leaves the task alone: the caller waits for its PID. */
	pid_t release() noexcept { return std::exchange(pid_, -1); }

private:
	std::optional<exit_status> wait(int flags)
	{
		if (pid_ < 0)
			detail::fail(ECHILD, "task " + std::to_string(id_) + " was waited for");
		int status = 0;
		pid_t pid;
		do
			pid = waitpid(pid_, &status, flags);
		while (pid < 0 && errno == EINTR);
		if (pid < 0)
			detail::fail(errno, "task " + std::to_string(id_) + ": waitpid");
		if (pid == 0)
			return std::nullopt;
		pid_ = -1;
		return exit_status(status);
	}

	void end() noexcept
	{
		if (pid_ < 0)
			return;
		::kill(pid_, SIGKILL);
		while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR)
			;
		pid_ = -1;
	}

	int id_;
	pid_t pid_;
};

/* Attributes of a space, as of struct pvas_space_attr. */
struct space_options {
	std::optional<std::size_t> segment_size;
	std::optional<int> max_tasks;
	std::optional<bool> shared;
};

/* Attributes of a task, as of struct pvas_spawn_attr. */
struct spawn_options {
	int id = PVAS_ANY_ID;
	std::optional<std::vector<std::string>> env;         /* "NAME=value"; default: the caller's */
	std::optional<std::vector<std::pair<int, int>>> fds; /* descriptor here, there */
	std::optional<std::string> cwd;
	std::optional<cpu_set_t> cpus;
	std::optional<int> pdeathsig;
	std::optional<pid_t> pgid;
	std::optional<std::size_t> segment_size;
};

/* A space that this process makes and owns. The destructor removes it: tasks that still run are
 * killed. */
class space : public space_view {
public:
	explicit space(const space_options &options = {}) : space_view(create(options)) {}
	space(space &&other) noexcept : space_view(std::exchange(other.pvd_, -1)) {}
	space &operator=(space &&other) noexcept
	{
		space moved(std::move(other));
		std::swap(pvd_, moved.pvd_);
		return *this;
	}
	~space() { reset(); }

	/* Makes a domain of the IDs first .. first+count-1 on these processors. Returns its number. */
	int add_domain(int first, int count, const std::optional<cpu_set_t> &cpus = {})
	{
		return detail::check(pvas_add_domain(pvd_, first, count, cpus ? &*cpus : nullptr,
		                                     cpus ? sizeof *cpus : 0));
	}

	/* Starts a program as a task. The first argument is the program's path, also relative to
	 * the working directory; PATH is not searched. Returns when it has been loaded. */
	[[nodiscard]] task spawn(const std::vector<std::string> &arguments,
	                         const spawn_options &options = {})
	{
		if (arguments.empty())
			detail::fail(EINVAL, "pvas::space::spawn: no program");
		int id = -1;
		pvas_spawn_attr attr{};
		attr.fields = PVAS_SPAWN_ID;
		attr.id = &id;
		std::vector<int> pairs;
		if (options.fds) {
			for (const auto &pair : *options.fds)
				pairs.insert(pairs.end(), {pair.first, pair.second});
			attr.fields |= PVAS_SPAWN_FDS;
			static const int none[2] = {-1, -1}; /* an empty map is not NULL */
			attr.fd_map = reinterpret_cast<const int(*)[2]>(pairs.empty() ? none : pairs.data());
			attr.n_fds = options.fds->size();
		}
		if (options.cwd) {
			attr.fields |= PVAS_SPAWN_CWD;
			attr.cwd = options.cwd->c_str();
		}
		if (options.cpus) {
			attr.fields |= PVAS_SPAWN_CPUS;
			attr.cpus = &*options.cpus;
			attr.cpus_size = sizeof *options.cpus;
		}
		set(attr, attr.pdeathsig, options.pdeathsig, PVAS_SPAWN_PDEATHSIG);
		set(attr, attr.pgid, options.pgid, PVAS_SPAWN_PGID);
		set(attr, attr.segment_size, options.segment_size, PVAS_SPAWN_SEGMENT_SIZE);
		std::vector<char *> argv = pointers(arguments);
		std::vector<char *> envp;
		if (options.env)
			envp = pointers(*options.env);
		pid_t pid = detail::check(pvas_spawn(pvd_, options.id, arguments[0].c_str(),
		                                     argv.data(), options.env ? envp.data() : environ,
		                                     &attr));
		return task(id, pid);
	}

	/* Removes the space now. */
	void reset() noexcept
	{
		if (pvd_ >= 0)
			pvas_destroy(std::exchange(pvd_, -1));
	}

private:
	static int create(const space_options &options)
	{
		pvas_space_attr attr{};
		set(attr, attr.segment_size, options.segment_size, PVAS_SPACE_SEGMENT_SIZE);
		set(attr, attr.max_tasks, options.max_tasks, PVAS_SPACE_MAX_TASKS);
		set(attr, attr.shared, options.shared, PVAS_SPACE_SHARED);
		return detail::check(pvas_create_attr(&attr));
	}

	template <typename Attr, typename Member, typename Value>
	static void set(Attr &attr, Member &member, const std::optional<Value> &value, unsigned flag)
	{
		if (value) {
			attr.fields |= flag;
			member = *value;
		}
	}

	/* A list as execve(2) takes it, which does not write to it. */
	static std::vector<char *> pointers(const std::vector<std::string> &strings)
	{
		std::vector<char *> list;
		for (const std::string &string : strings)
			list.push_back(const_cast<char *>(string.c_str()));
		list.push_back(nullptr);
		return list;
	}
};

} /* namespace pvas */

#if __cplusplus >= 202002L
/* A view does not own its elements, so that iterators outlive it. */
template <typename T>
inline constexpr bool std::ranges::enable_borrowed_range<pvas::view<T>> = true;
#endif

#endif
