// A pretend accelerator for tests: values are the CPU's, computed at once; time is counted, not spent.
//
// A virtual clock stands for the host's. A launch moves it a little, and a wait moves it to the moment at which the
// device is done. Each device has streams, whose work begins behind the work before it. Nothing else moves a clock, so
// that the same script takes the same time on every machine, however busy it is.

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <array>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr auto KEY = c10::DeviceType::PrivateUse1;
constexpr int MOST = 4;         // devices
constexpr size_t DEPTH = 1024;  // launches that a stream holds before the host has to wait
constexpr double LAUNCH = 5e-6;  // seconds of the host for a launch

struct Stream {
  double free = 0;  // the moment at which it will have done all its work
  std::deque<double> ends;
};

struct Device {
  std::map<c10::StreamId, Stream> streams;
  c10::StreamId newest = 0;
  long launches = 0, copies = 0, waits = 0;
  size_t allocated = 0, peak = 0;
};

struct Settings {
  int devices = 2;
  double kernel = 1e-4, copy = 1e-4, byte = 0;  // seconds
  size_t memory = 1ull << 30;                   // bytes of a device
  bool warns = false;                           // of waits, like CUDA's sync debug mode
  bool captures = false;                        // into a graph, when nothing can be waited for
} settings;

std::mutex lock;
double host = 1;  // the moment that the host has come to
auto& devices = *new std::array<Device, MOST>;  // tensors may outlive everything

thread_local int current = 0;
thread_local std::array<c10::StreamId, MOST> streams{};
thread_local bool inside = false;  // an operator that copies its operands to the CPU and back, free of charge

// ------------------------------------------------------------------------------------------------- time

double book(int index, double seconds) {
  std::lock_guard<std::mutex> guard(lock);
  auto& stream = devices[index].streams[streams[index]];
  host += LAUNCH;
  stream.free = std::max(stream.free, host) + seconds;
  stream.ends.push_back(stream.free);
  while (!stream.ends.empty() && stream.ends.front() <= host) stream.ends.pop_front();
  if (stream.ends.size() > DEPTH) host = std::max(host, stream.ends[stream.ends.size() - DEPTH]);
  return stream.free;
}

void launch(int index) {
  devices[index].launches++;
  book(index, settings.kernel);
}

double free_at(int index, c10::StreamId id) {
  std::lock_guard<std::mutex> guard(lock);
  return devices[index].streams[id].free;
}

double all_free_at(int index) {
  std::lock_guard<std::mutex> guard(lock);
  double last = 0;
  for (auto& [id, stream] : devices[index].streams) last = std::max(last, stream.free);
  return last;
}

void wait(int index, double moment, bool seen) {
  TORCH_CHECK(!settings.captures, "operation not permitted while a graph is captured");
  if (seen && settings.warns) TORCH_WARN("called a synchronizing CUDA operation");
  std::lock_guard<std::mutex> guard(lock);
  devices[index].waits++;
  host = std::max(host, moment);
}

int checked(c10::DeviceIndex index) {
  TORCH_CHECK(index < settings.devices, "there is no pretend device ", int(index));
  return index < 0 ? current : index;
}

// ------------------------------------------------------------------------------------------------- memory

struct Block {
  void* data;
  size_t size;
  int device;
};

void drop(void* context) {
  auto* block = static_cast<Block*>(context);
  {
    std::lock_guard<std::mutex> guard(lock);
    devices[block->device].allocated -= block->size;
  }
  if (block->data) c10::free_cpu(block->data);
  delete block;
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    auto& device = devices[current];
    {
      std::lock_guard<std::mutex> guard(lock);
      TORCH_CHECK_WITH(
          OutOfMemoryError, device.allocated + size <= settings.memory, "pretend device out of memory: tried to ",
          "allocate ", size, " bytes of ", settings.memory - device.allocated, " free ones");
      device.allocated += size;
      device.peak = std::max(device.peak, device.allocated);
    }
    auto* block = new Block{size ? c10::alloc_cpu(size) : nullptr, size, current};
    return {block->data, block, &drop, c10::Device(KEY, current)};
  }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    std::lock_guard<std::mutex> guard(lock);
    for (auto* group : {&stats.allocated_bytes, &stats.reserved_bytes}) {
      (*group)[0].current = devices[index].allocated;
      (*group)[0].peak = devices[index].peak;
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    std::lock_guard<std::mutex> guard(lock);
    devices[index].peak = devices[index].allocated;
  }
};
auto& device_memory = *new Memory;
REGISTER_ALLOCATOR(KEY, &device_memory);

std::map<const char*, size_t>& pinned_blocks = *new std::map<const char*, size_t>;

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> guard(lock);
  auto* place = static_cast<const char*>(pointer);
  auto it = pinned_blocks.upper_bound(place);
  return it != pinned_blocks.begin() && place < std::prev(it)->first + std::prev(it)->second;
}

void unpin(void* data) {
  {
    std::lock_guard<std::mutex> guard(lock);
    pinned_blocks.erase(static_cast<const char*>(data));
  }
  c10::free_cpu(data);
}

struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(std::max<size_t>(size, 1));
    std::lock_guard<std::mutex> guard(lock);
    pinned_blocks[static_cast<const char*>(data)] = size;
    return {data, data, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
auto& pinned_memory = *new Pinned;

// ------------------------------------------------------------------------------------------------- streams and events

double& moment_of(void* event) { return *static_cast<double*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KEY; }
  c10::Device getDevice() const override { return {KEY, static_cast<c10::DeviceIndex>(current)}; }
  void setDevice(c10::Device device) const override { current = checked(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = std::max<int>(device.index(), 0); }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto old = getDevice();
    setDevice(device);
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return settings.devices; }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    wait(checked(index), all_free_at(checked(index)), false);
  }
  static c10::Stream stream(int index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(KEY, index), id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(checked(device.index()), streams[checked(device.index())]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(checked(device.index()), 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    std::lock_guard<std::mutex> guard(lock);
    return stream(checked(device.index()), ++devices[checked(device.index())].newest);
  }
  c10::Stream exchangeStream(c10::Stream fresh) const override {
    auto old = getStream(fresh.device());
    streams[checked(fresh.device_index())] = fresh.id();
    return old;
  }
  bool queryStream(const c10::Stream& s) const override { return free_at(s.device_index(), s.id()) <= host; }
  void synchronizeStream(const c10::Stream& s) const override {
    wait(s.device_index(), free_at(s.device_index(), s.id()), true);
  }
  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new double;
    // What is recorded into a graph never has a time.
    moment_of(*event) = settings.captures ? std::numeric_limits<double>::infinity() : std::max(free_at(s.device_index(), s.id()), host);
  }
  void block(void* event, const c10::Stream& s) const override {
    std::lock_guard<std::mutex> guard(lock);
    auto& stream = devices[s.device_index()].streams[s.id()];
    if (event) stream.free = std::max(stream.free, moment_of(event));
  }
  bool queryEvent(void* event) const override { return !event || moment_of(event) <= host; }
  void synchronizeEvent(void* event) const override {
    if (event) wait(current, moment_of(event), true);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    // As on CUDA, an event that the device has not come to yet has no time.
    TORCH_CHECK(queryEvent(first) && queryEvent(second), "the device has not come to both events yet");
    return 1e3 * (moment_of(second) - moment_of(first));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return devices[checked(index)].peak > 0; }
  c10::DeviceIndex deviceCount() const override { return settings.devices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current = checked(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto old = current;
    current = checked(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

// ------------------------------------------------------------------------------------------------- tensors

bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == KEY; }

at::Tensor make_empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat), format);
}

at::Tensor make_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      size, stride, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat));
}

at::Tensor as_host(const at::Tensor& tensor) {
  if (!on_device(tensor)) return tensor;
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [](void*) {}, tensor.options().device(at::kCPU));
}

void book_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  bool leaves = on_device(from), arrives = on_device(to);
  int index = (leaves ? from : to).device().index();
  if (leaves && arrives) {
    launch(index);
    return;
  }
  const auto& outside = leaves ? to : from;
  devices[index].copies++;
  double end = book(index, settings.copy + settings.byte * outside.nbytes());
  // A pageable copy waits whatever it was asked for, and CUDA's sync debug mode does not report that.
  if (!non_blocking || !is_pinned(outside.data_ptr())) wait(index, end, !non_blocking);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!inside) book_copy(from, to, non_blocking);
  as_host(to).copy_(as_host(from));
  return to;
}

at::Tensor copy_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& tensor) {
  int index = tensor.device().index();
  wait(index, free_at(index, streams[index]), true);
  return as_host(tensor).item();
}

at::Tensor& set_storage(
    at::Tensor& result, at::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(result, std::move(storage), offset, size, stride);
}

at::Tensor as_strided(
    const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

// ------------------------------------------------------------------------------------------------- operators

// Operators whose result has a size that only the device knows.
const std::set<std::string> WAITERS = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal"};

// The device of the operands: that of the first one on a device.
int device_of(const torch::jit::Stack& stack, size_t count) {
  for (const auto& value : torch::jit::last(stack, count)) {
    if (value.isTensor() && on_device(value.toTensor())) return value.toTensor().device().index();
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector())
        if (on_device(tensor)) return tensor.device().index();
  }
  return current;
}

struct Inside {  // for as long as it lives, copies cost nothing
  bool before = inside;
  int device = current;
  explicit Inside(int index) {
    inside = true;
    current = index;
  }
  ~Inside() {
    inside = before;
    current = device;
  }
};

// Every operator that has no kernel of its own: one launch.
void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  int index = device_of(*stack, op.schema().arguments().size());
  launch(index);
  if (WAITERS.count(op.schema().name())) wait(index, free_at(index, streams[index]), true);
  Inside here(index);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &make_empty);
  m.impl("empty_strided", &make_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_and_resize);
  m.impl("_local_scalar_dense", &item);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
}

}  // namespace

// ------------------------------------------------------------------------------------------------- for accelerator.py

extern "C" {
void pretend_start() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
void pretend_set(int count, double kernel, double copy, double byte, size_t memory) {
  settings = {count, kernel, copy, byte, memory, settings.warns, settings.captures};
}
void pretend_warn(bool on) { settings.warns = on; }
void pretend_capture(bool on) { settings.captures = on; }
bool pretend_captures() { return settings.captures; }
long pretend_allocated(int index) { return devices[index].allocated; }
double pretend_now() { return host; }
void pretend_work(double seconds) {
  std::lock_guard<std::mutex> guard(lock);
  host += seconds;
}
double pretend_done_at() {
  double last = host;
  for (int index = 0; index < settings.devices; index++) last = std::max(last, all_free_at(index));
  return last;
}
int pretend_current() { return current; }
void pretend_set_current(int index) { current = index; }
void pretend_wait(int index) { wait(index, all_free_at(index), false); }
long pretend_launches(int index) { return devices[index].launches; }
long pretend_copies(int index) { return devices[index].copies; }
long pretend_waits(int index) { return devices[index].waits; }
}
