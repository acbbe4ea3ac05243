#ifndef CACHE_HPP
#define CACHE_HPP

#include <functional>
#include <list>
#include <string>
#include <utility>

// Remembers what was computed for the keys that were used last.
class Cache {
public:
	explicit Cache(std::size_t room) : room_(room) {}

	// The value of `key`: remembered, or what `compute` returns. What `compute` throws goes through.
	long get(const std::string &key, const std::function<long(const std::string &)> &compute);

private:
	struct Entry {
		std::string key;
		long value;
		unsigned long used;
	};

	void make_room();

	std::list<Entry> entries_; // the one that was used last comes first
	std::size_t room_;
	unsigned long clock_ = 0;
};

#endif
