#include "cache.hpp"

#include "cache_probes.h"

long Cache::get(const std::string &key, const std::function<long(const std::string &)> &compute)
{
	clock_++;
	for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
		if (entry->key != key)
			continue;
		CACHE_HIT(key.c_str(), static_cast<int>(entries_.size()));
		entry->used = clock_;
		entries_.splice(entries_.begin(), entries_, entry);
		return entry->value;
	}
	CACHE_MISS(key.c_str());
	const long value = compute(key);
	if (entries_.size() == room_)
		make_room();
	entries_.push_front({key, value, clock_});
	return value;
}

void Cache::make_room()
{
	const Entry &oldest = entries_.back();

	CACHE_EVICT(oldest.key.c_str(), clock_ - oldest.used);
	entries_.pop_back();
}
