// C++ functions with several entries, several names, and copies in several objects.
struct Base {
  explicit Base(int start) : value(start) {}
  virtual ~Base() {}
  virtual int answer(int x) { return x + value; }
  int value;
};

struct Other {
  virtual ~Other() {}
  virtual int reply(int x) { return x * 2; }
  int more = 4;
};

struct Both : Base, virtual Other {
  Both() : Base(5) {}
  ~Both() override;
  int answer(int x) override { return x - value; }
  int reply(int x) override;
};

Both::~Both() { value = 0; }
int Both::reply(int x) { return x + more; }

template <class T>
__attribute__((noinline)) T twice(T x) {
  volatile T kept = x;
  return kept + x;
}

inline int shared(int x) { return x * 3 + 1; }
static int (*volatile keep)(int) = shared;

namespace space {
__attribute__((noinline)) int inside(int x) {
  if (x > 1000) throw x;
  return x + 1;
}
}  // namespace space

static Both global_object;

int use(Base& base, Other& other, int x) {
  auto add = [x](int y) __attribute__((noinline)) { return x + y; };
  try {
    return base.answer(x) + other.reply(x) + add(3) + space::inside(x);
  } catch (int y) {
    return y;
  }
}

#ifndef NO_MAIN
int main(int argc, char**) {
  Both both;
  return (use(both, global_object, argc) + twice(argc) + int(twice(2.0)) + keep(argc)) & 0;
}
#endif
