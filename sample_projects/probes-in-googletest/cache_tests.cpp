#include <gtest/gtest.h>

#include <stdexcept>

#include "cache.hpp"
#include "fired.hpp"
#include "usdt_live.h"

namespace {

using Hits = std::vector<std::string>;

long length(const std::string &key)
{
	return static_cast<long>(key.size());
}

TEST(Probes, TellHitsAndMissesWithTheirKeys)
{
	Fired fired("cache:*");
	ASSERT_GT(fired.sites(), 0);
	Cache cache(2);

	EXPECT_EQ(cache.get("pear", length), 4);
	EXPECT_EQ(cache.get("pear", length), 4);
	EXPECT_EQ(fired.hits(), (Hits{"miss(\"pear\")", "hit(\"pear\", 1)"}));
}

TEST(Probes, TellTheAgeOfWhatIsForgotten)
{
	Fired fired("cache:evict");
	ASSERT_GT(fired.sites(), 0);
	Cache cache(2);

	for (const char *key : {"one", "two", "one", "three"})
		cache.get(key, length);
	EXPECT_EQ(fired.hits(), (Hits{"evict(\"two\", 2)"}));
}

TEST(Probes, AreSilentWhenTheyAreOff)
{
	Cache cache(1);
	unsigned long long before;

	{
		Fired fired("cache:miss");
		cache.get("a", length);
		EXPECT_EQ(fired.hits().size(), 1u);
		before = usdt_live_count(USDT_LIVE_PROBES, "cache:*");
	}
	cache.get("b", length);
	EXPECT_EQ(usdt_live_count(USDT_LIVE_PROBES, "cache:*"), before);
}

TEST(Probes, AreRightWhereComputingThrows)
{
	Fired fired("cache:*");
	Cache cache(1);
	const auto fails = [](const std::string &) -> long { throw std::runtime_error("no"); };

	EXPECT_THROW(cache.get("a", fails), std::runtime_error);
	cache.get("a", length);
	EXPECT_EQ(fired.hits(), (Hits{"miss(\"a\")", "miss(\"a\")"}));
}

} // namespace
