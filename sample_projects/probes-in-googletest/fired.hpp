#ifndef FIRED_HPP
#define FIRED_HPP

#include <cstdint>
#include <string>
#include <vector>

// Probes of a pattern are on, and what they tell is kept, for as long as one of these lives.
class Fired {
public:
	explicit Fired(const char *pattern);
	~Fired();
	Fired(const Fired &) = delete;
	Fired &operator=(const Fired &) = delete;

	// How many sites are on: 0 means a wrong pattern, or a build without probes.
	int sites() const { return sites_; }
	// What was hit, in order, as "name(argument, ...)"; texts are in quotes.
	const std::vector<std::string> &hits() const { return hits_; }
	void clear() { hits_.clear(); }

private:
	friend struct Handler;

	std::string pattern_;
	int sites_;
	std::vector<std::string> hits_;
};

#endif
