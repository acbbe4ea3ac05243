// A probe's handler runs between two instructions of the code that fired it. Here that is a test of one thread, which
// holds no lock there, so that the handler may allocate.
#include "fired.hpp"

#include <cstring>

#include "usdt_live.h"

namespace {

std::string argument(const usdt_live_hit *hit, unsigned index)
{
	const usdt_live_argument_place &place = hit->point->arguments[index];
	const std::uint64_t value = usdt_live_argument(hit, index);

	if (std::strstr(place.type, "char") && std::strchr(place.type, '*'))
		return '"' + std::string(reinterpret_cast<const char *>(value)) + '"';
	return place.is_signed ? std::to_string(static_cast<std::int64_t>(value)) : std::to_string(value);
}

} // namespace

struct Handler {
	static void hit(const usdt_live_hit *hit, void *data)
	{
		std::string text = std::string(hit->point->name) + '(';

		for (unsigned i = 0; i < hit->point->argument_count; i++)
			text += (i ? ", " : "") + argument(hit, i);
		static_cast<Fired *>(data)->hits_.push_back(text + ')');
	}
};

Fired::Fired(const char *pattern) : pattern_(pattern), sites_(usdt_live_probe_on(pattern, Handler::hit, this)) {}

Fired::~Fired()
{
	usdt_live_probe_off(pattern_.c_str());
}
