// A device that is not the CPU, for machines without one: torch's PrivateUse1 over host memory.
//
// Every kernel is the CPU's. What the device adds is what a CPU run cannot show:
//   * tensors of two devices in one operator are an error (zero-dimensional CPU tensors are not);
//   * every place where the host would wait for the device is counted, or refused in strict mode:
//     blocking copies in either direction, copies into pageable memory, scalars, operators whose
//     shape depends on data, and waits for an event or the whole device;
//   * copies that nobody waits for are late: what goes to pinned memory is not there, and what
//     leaves it must stay as it is, until the host has waited for the right event;
//   * a thread begins with device 0, and may not wait for an event of another one than its own;
//   * autocast with CUDA's operator lists, so that rounding happens where it would there;
//   * memory in use and its peak.
// No Python header is needed: the controls at the end are plain C functions.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
constexpr auto HERE = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 2;

thread_local DeviceIndex current = 0;
thread_local bool emulating = false;  // inside a borrowed CPU kernel: its copies are not ours
thread_local bool beside = false;  // a thread whose waits hold nobody up

// Everything shared lives until the process is gone: tensors may be freed after static objects are.
struct Late {  // a copy between a device and pinned memory that has not run yet
  DeviceIndex device;
  int64_t turn;
  Tensor host, value;
  bool down;
};
struct Books {
  std::mutex lock;
  std::map<std::string, int64_t> waits, kernels;
  std::set<const void*> pinned;
  int64_t used = 0, peak = 0;
  bool strict = false;
  std::vector<Late> late;
  int64_t turn = 0;
};
Books& books() {
  static auto* all = new Books;
  return *all;
}

void host_waits(const std::string& where) {
  if (emulating) return;
  bool strict;
  {
    std::lock_guard<std::mutex> hold(books().lock);
    ++books().waits[(beside ? "beside: " : "") + where];
    strict = books().strict;
  }
  TORCH_CHECK(!strict, "rehearsal: the host waits for the device: ", where);
}

// ---- copies that are still to come ---------------------------------------------------------------

void run_late(DeviceIndex device, int64_t until) {
  std::vector<Late> now, then;
  {
    std::lock_guard<std::mutex> hold(books().lock);
    for (auto& x : books().late)
      (x.device == device && x.turn <= until ? now : then).push_back(std::move(x));
    books().late = std::move(then);
  }
  for (auto& x : now) {
    if (x.down) x.host.copy_(x.value);
    else TORCH_CHECK(at::equal(x.host, x.value),
                     "rehearsal: pinned memory was written before the copy out of it had run");
  }
}
void run_late(DeviceIndex device) { run_late(device, std::numeric_limits<int64_t>::max()); }

void be_late(DeviceIndex device, const Tensor& host, const Tensor& value, bool down) {
  if (down) host.is_floating_point() ? host.fill_(NAN) : host.fill_(1);
  std::lock_guard<std::mutex> hold(books().lock);
  books().late.push_back({device, ++books().turn, host.detach(), value.clone(), down});
}

// ---- memory ---------------------------------------------------------------------------------

struct Piece {
  void* data;
  int64_t bytes;
  bool pinned;
};

void give_back(void* context) {
  auto* piece = static_cast<Piece*>(context);
  {
    std::lock_guard<std::mutex> hold(books().lock);
    if (piece->pinned) books().pinned.erase(piece->data);
    else books().used -= piece->bytes;
  }
  std::free(piece->data);
  delete piece;
}

Piece* take(size_t bytes, bool pinned) {
  void* data = nullptr;
  if (bytes) TORCH_CHECK(posix_memalign(&data, 64, bytes) == 0, "rehearsal: out of memory");
  std::lock_guard<std::mutex> hold(books().lock);
  if (pinned) {
    books().pinned.insert(data);
  } else {
    books().used += static_cast<int64_t>(bytes);
    books().peak = std::max(books().peak, books().used);
  }
  return new Piece{data, static_cast<int64_t>(bytes), pinned};
}

struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* piece = take(bytes, false);
    return {piece->data, piece, &give_back, Device(HERE, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* piece = take(bytes, true);
    return {piece->data, piece, &give_back, Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};

DeviceMemory& device_memory() {
  static auto* one = new DeviceMemory;
  return *one;
}
PinnedMemory& pinned_memory() {
  static auto* one = new PinnedMemory;
  return *one;
}

struct OnDevice {  // allocate on the asked device
  DeviceIndex before = current;
  explicit OnDevice(std::optional<Device> d) {
    if (d && d->has_index()) current = d->index();
  }
  ~OnDevice() { current = before; }
};

// ---- devices, streams, events -----------------------------------------------------------------

using Clock = std::chrono::steady_clock;
struct Moment {  // of an event
  Clock::time_point time;
  DeviceIndex device;
  int64_t turn;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = HERE;
  c10::DeviceType type() const override { return HERE; }
  Device getDevice() const override { return {HERE, current}; }
  Device exchangeDevice(Device next) const override {
    Device before = getDevice();
    current = next.index() < 0 ? current : next.index();
    return before;
  }
  void setDevice(Device next) const override { exchangeDevice(next); }
  void uncheckedSetDevice(Device next) const noexcept override {
    if (next.index() >= 0) current = next.index();
  }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  Stream getStream(Device d) const override { return Stream(Stream::DEFAULT, d); }
  Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, d); }
  Stream getNewStream(Device d, int) const override { return Stream(Stream::DEFAULT, d); }
  Stream exchangeStream(Stream s) const override { return Stream(Stream::DEFAULT, s.device()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& s) const override {
    host_waits("a stream");
    run_late(s.device_index());
  }
  void synchronizeDevice(DeviceIndex d) const override {
    host_waits("the device");
    run_late(d < 0 ? current : d);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
  // An event is the moment at which it was recorded; all kernels are done by then.
  void record(void** event, const Stream& s, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Moment;
    std::lock_guard<std::mutex> hold(books().lock);
    *static_cast<Moment*>(*event) = {Clock::now(), s.device_index(), books().turn};
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    auto* it = static_cast<Moment*>(event);
    std::lock_guard<std::mutex> hold(books().lock);
    for (const auto& x : books().late) if (x.device == it->device && x.turn <= it->turn) return false;
    return true;
  }
  void synchronizeEvent(void* event) const override {
    host_waits("an event");
    if (event == nullptr) return;
    auto* it = static_cast<Moment*>(event);
    TORCH_CHECK(it->device == current, "rehearsal: a thread of device ", int(current),
                " waits for an event of device ", int(it->device));
    run_late(it->device, it->turn);
  }
  double elapsedTime(void* a, void* b, DeviceIndex) const override {
    auto span = static_cast<Moment*>(b)->time - static_cast<Moment*>(a)->time;
    return std::chrono::duration<double, std::milli>(span).count();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex d) const override { current = d; }
  DeviceIndex exchangeDevice(DeviceIndex d) const override { return std::exchange(current, d); }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return exchangeDevice(d); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> hold(books().lock);
    return books().pinned.count(data) > 0;
  }
  Device getDeviceFromPtr(void*) const override { return {HERE, current}; }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    OnDevice there(storage.device());
    auto next = device_memory().allocate(bytes);
    if (storage.data()) std::memcpy(next.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(next));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// ---- operators that are about memory, not arithmetic -------------------------------------------

const auto KEYS = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> d, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  OnDevice there(d);
  return at::detail::empty_generic(size, &device_memory(), KEYS, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<Device> d, std::optional<bool>) {
  OnDevice there(d);
  return at::detail::empty_strided_generic(size, stride, &device_memory(), KEYS,
                                           c10::dtype_or_default(dtype));
}

Tensor on_host(const Tensor& t) {  // the same memory, seen as a CPU tensor
  if (t.is_cpu()) return t;
  auto* data = static_cast<char*>(t.storage().mutable_data());
  return at::from_blob(data + t.storage_offset() * t.itemsize(), t.sizes(), t.strides(),
                       t.options().device(at::kCPU));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  bool late = false;
  const bool down = to.is_cpu();
  const auto device = (down ? from : to).device().index();
  if (from.is_cpu() != to.is_cpu() && from.numel() && !emulating) {
    late = non_blocking && (down ? to : from).is_pinned();
    if (!non_blocking) host_waits(down ? "copy to the host" : "copy to the device");
    else if (down && !late) host_waits("copy to pageable memory");
    if (!non_blocking || (down && !late)) run_late(device);
  }
  if (late) be_late(device, down ? to : from, on_host(from), down);
  if (!late || !down) on_host(to).copy_(on_host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  OnDevice there(to.device());
  at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

at::Scalar scalar(const Tensor& t) {
  host_waits("a scalar");
  if (!emulating) run_late(t.device().index());
  return at::_local_scalar_dense(on_host(t));
}

bool equal(const Tensor& a, const Tensor& b) {
  host_waits("equal");
  return at::equal(on_host(a), on_host(b));
}

// ---- everything else ----------------------------------------------------------------------------

const std::set<std::string>& data_shaped() {
  static auto* names = new std::set<std::string>{
      "aten::nonzero", "aten::masked_select", "aten::bincount", "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::is_nonzero", "aten::histc"};
  return *names;
}
const std::set<std::string>& takes_host_index() {
  static auto* names = new std::set<std::string>{
      "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"};
  return *names;
}

void borrow_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  std::optional<Device> found;
  bool cpu = false;
  auto look = [&](const Tensor& t) {
    if (!t.defined()) return;
    if (t.is_cpu()) {
      cpu = cpu || t.dim() > 0;
      return;
    }
    TORCH_CHECK(!found || *found == t.device(), "rehearsal: ", *found, " and ", t.device(), " in ", name);
    found = t.device();
  };
  for (const auto& v : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (v.isTensor()) look(v.toTensor());
    if (v.isTensorList()) for (const Tensor& t : v.toTensorVector()) look(t);
    if (v.isOptionalTensorList())
      for (const std::optional<Tensor> t : v.toOptionalTensorList()) if (t) look(*t);
  }
  if (found && cpu) {
    TORCH_CHECK(takes_host_index().count(name),
                "Expected all tensors to be on the same device, but found ", *found, " and cpu in ", name);
    host_waits("copy of an index to the device");
  }
  if (data_shaped().count(name)) host_waits(name);
  {
    std::lock_guard<std::mutex> hold(books().lock);
    ++books().kernels[name];
  }
  struct Emulating {
    bool before = std::exchange(emulating, true);
    ~Emulating() { emulating = before; }
  } inside;
  at::native::cpu_fallback(op, stack, false);
}

}  // namespace

namespace c10 {
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &device_memory());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&borrow_cpu_kernel>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", [](const Tensor& t, c10::IntArrayRef size,
                       std::optional<at::MemoryFormat> f) -> const Tensor& {
    OnDevice there(t.device());
    return at::native::resize_(t, size, f);
  });
  m.impl("set_.source_Storage",
         [](Tensor& t, at::Storage s) -> Tensor& { return at::native::set_(t, s); });
  m.impl("set_.source_Storage_storage_offset",
         [](Tensor& t, at::Storage s, int64_t offset, c10::IntArrayRef size,
            c10::IntArrayRef stride) -> Tensor& {
           return at::native::set_storage_cpu_(t, s, offset, size, stride);
         });
  m.impl("set_.source_Tensor",
         [](Tensor& t, const Tensor& from) -> Tensor& { return at::native::set_tensor_(t, from); });
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &scalar);
  m.impl("equal", &equal);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SINGLE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SINGLE_BY_OPTION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(SINGLE)
  AT_FORALL_FP32_SET_OPT_DTYPE(SINGLE_BY_OPTION)
  AT_FORALL_PROMOTE(WIDEST)
}

extern "C" {

void rehearsal_start() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }

void rehearsal_reset() {
  std::lock_guard<std::mutex> hold(books().lock);
  books().waits.clear();
  books().kernels.clear();
  books().peak = books().used;
}

void rehearsal_strict(int on) { books().strict = on != 0; }

void rehearsal_beside(int on) { beside = on != 0; }

int64_t rehearsal_memory(int peak) { return peak ? books().peak : books().used; }

int rehearsal_device(int next) {  // -1 only asks
  return next < 0 ? current : std::exchange(current, static_cast<DeviceIndex>(next));
}

const char* rehearsal_counts(int kernels) {  // lines "count name"; valid until the next call
  static std::string text;
  std::lock_guard<std::mutex> hold(books().lock);
  text.clear();
  for (const auto& [name, n] : kernels ? books().kernels : books().waits)
    text += std::to_string(n) + " " + name + "\n";
  return text.c_str();
}

}  // extern "C"
