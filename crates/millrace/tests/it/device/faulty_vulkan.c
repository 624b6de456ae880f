// A libvulkan.so.1 before the real one, whose driver fails in the ways that the variable VULKAN_FAULTS names, separated by spaces:
//
//   discrete      the processor is shown as a discrete GPU
//   processor     every device is shown as a processor
//   fast          what measures the bandwidth of memory takes no time
//   slow          every submit takes half a second
//   instance      there is no instance
//   refuses       no device is opened
//   old           the driver knows Vulkan 1.0 only, without extensions
//   few           fewer constants for a kernel than ours have
//   unlisted      the driver does not say which extensions it has
//   wrong         no kernel does anything
//   tiles         products by tiles, and they alone, are wrong
//   small         buffers of kernels have at most 4 MiB
//   lost          the device is lost with the first submit
//   memory=MIB    there is no memory beyond so many MiB
//   uploads       there is no memory for long buffers from which the host's bytes are copied
//
// Files in the folder VULKAN_REQUESTS ask for faults while the program runs:
//
//   lose          is removed, and the open device is lost
//   hang          is removed, and the open device gives no answer from then on; time passes faster for those who wait for it
//   refuse        is removed, and there is no memory for one buffer
//   full          while it is there, there is no memory
//
// The file "counts" there has the numbers of calls of the process: see enum Call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = -2, INITIALIZATION_FAILED = -3, DEVICE_LOST = -4, DISCRETE = 2, PROCESSOR = 4, READ_BLOCKS = 4096, COPIED_FROM = 1 };
enum { LONG = 1 << 16, SLOW_US = 500000 };
// What ten seconds are to those who wait for a device that hangs: one.
enum { HASTE = 10 };
// Words of SPIR-V, and the vectors that a tile of products has of its weights.
enum { HEADER_WORDS = 5, OP_EXT_INST = 12, OP_CONSTANT = 43, FMA = 50, FMIX = 46, TILE_VECTORS = 9 * 64 };

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);

// The first fields of VkPhysicalDeviceProperties, and of its limits.
struct Properties {
    uint32_t api, driver, vendor, device, type;
    char name[256];
    uint8_t cache[16];
    uint64_t limits[0];
    uint32_t images[7], storage, constants;
};
struct Properties2 {
    uint32_t type;
    void *next;
    struct Properties properties;
};

static int has(const char *fault) {
    const char *faults = getenv("VULKAN_FAULTS");
    return faults && strstr(faults, fault);
}

// The first fields of VkMemoryAllocateInfo and VkBufferCreateInfo.
struct Allocation {
    uint32_t type;
    const void *next;
    uint64_t bytes;
};
struct Buffer {
    uint32_t type;
    const void *next;
    uint32_t flags;
    uint64_t bytes;
    uint32_t usage;
};

static Lookup real_of_instance, real_of_device;
static int lost;
// The device that was opened last; the queue that gives no answer any more, and its device.
static void *opened, *hung, *hung_device;

// Calls that are counted.
enum Call { SUBMITS, ALLOCATIONS, BUFFERS, CALLS };
static uint64_t *counts;

__attribute__((constructor)) static void open_counts(void) {
    const char *folder = getenv("VULKAN_REQUESTS");
    char path[4096];
    if (!folder || snprintf(path, sizeof path, "%s/counts", folder) >= (int)sizeof path) return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, CALLS * sizeof *counts) != 0) return;
    void *mapped = mmap(NULL, CALLS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) counts = mapped;
    close(file);
}

static void count(enum Call call) {
    if (counts) __atomic_fetch_add(&counts[call], 1, __ATOMIC_RELAXED);
}

// Whether a file asks for a fault; it is removed if the fault is wanted once.
static int asked(const char *request, int once) {
    const char *folder = getenv("VULKAN_REQUESTS");
    char path[4096];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, request) >= (int)sizeof path) return 0;
    return (once ? unlink(path) : access(path, F_OK)) == 0;
}

static int is_lost(void) {
    if (has("lost") || asked("lose", 1)) lost = 1;
    return lost;
}

static int (*real_create_instance)(const void *, const void *, void **);
static int create_instance(const void *info, const void *memory, void **instance) {
    return has("instance") ? INITIALIZATION_FAILED : real_create_instance(info, memory, instance);
}

static int (*real_create_device)(void *, const void *, const void *, void **);
static int create_device(void *physical, const void *info, const void *memory, void **device) {
    if (has("refuses")) return INITIALIZATION_FAILED;
    lost = 0;
    int result = real_create_device(physical, info, memory, device);
    if (result == 0) opened = *device;
    return result;
}

static void alter(struct Properties *properties) {
    if (has("discrete")) properties->type = DISCRETE;
    if (has("processor")) properties->type = PROCESSOR;
    if (has("old")) properties->api = 1 << 22;
    if (has("few")) properties->constants = 64;
    if (has("small")) properties->storage = 4 << 20;
}

static void (*real_properties)(void *, struct Properties *);
static void properties(void *physical, struct Properties *out) {
    real_properties(physical, out);
    alter(out);
}

static void (*real_properties2)(void *, struct Properties2 *);
static void properties2(void *physical, struct Properties2 *out) {
    real_properties2(physical, out);
    alter(&out->properties);
}

static int (*real_extensions)(void *, const char *, uint32_t *, void *);
static int extensions(void *physical, const char *layer, uint32_t *count, void *out) {
    if (has("unlisted")) return INITIALIZATION_FAILED;
    if (!has("old")) return real_extensions(physical, layer, count, out);
    *count = 0;
    return 0;
}

static void (*real_dispatch)(void *, uint32_t, uint32_t, uint32_t);
static void dispatch(void *commands, uint32_t x, uint32_t y, uint32_t z) {
    if (has("wrong") || (has("fast") && x == READ_BLOCKS)) return;
    real_dispatch(commands, x, y, z);
}

static int (*real_submit)(void *, uint32_t, const void *, void *);
static int submit(void *queue, uint32_t batches, const void *submits, void *fence) {
    count(SUBMITS);
    if (asked("hang", 1)) {
        hung = queue;
        hung_device = opened;
    }
    if (queue == hung) return 0;
    if (has("slow")) usleep(SLOW_US);
    return is_lost() ? DEVICE_LOST : real_submit(queue, batches, submits, fence);
}

static int (*real_wait_idle)(void *);
static int wait_idle(void *queue) {
    while (queue == hung) pause();
    return real_wait_idle(queue);
}

// What works is awaited for as long as it takes: a device that is a processor is slow on a busy machine.
static int (*real_wait)(void *, const void *, uint64_t);
static int wait_semaphores(void *device, const void *info, uint64_t nanoseconds) {
    if (device != hung_device && nanoseconds > 0) nanoseconds = UINT64_MAX;
    return real_wait(device, info, device == hung_device ? nanoseconds / HASTE : nanoseconds);
}

// The first fields of VkShaderModuleCreateInfo.
struct Module {
    uint32_t type;
    const void *next;
    uint32_t flags;
    size_t bytes;
    const uint32_t *code;
};

// Spoils what the code multiplies and adds, if it has the memory of a tile of products.
static void spoil(uint32_t *code, size_t words) {
    int is_tile = 0;
    for (int spoils = 0; spoils <= is_tile && spoils < 2; spoils++) {
        for (size_t i = HEADER_WORDS; i < words && code[i] >> 16; i += code[i] >> 16) {
            uint32_t operation = code[i] & 0xffff, length = code[i] >> 16;
            if (operation == OP_CONSTANT && length == 4 && code[i + 3] == TILE_VECTORS) is_tile = 1;
            if (spoils && operation == OP_EXT_INST && code[i + 4] == FMA) code[i + 4] = FMIX;
        }
    }
}

static int (*real_create_module)(void *, const struct Module *, const void *, uint64_t *);
static int create_module(void *device, const struct Module *info, const void *memory, uint64_t *out) {
    struct Module ours = *info;
    uint32_t *code = has("tiles") ? malloc(info->bytes) : NULL;
    if (code) {
        ours.code = memcpy(code, info->code, info->bytes);
        spoil(code, info->bytes / sizeof *code);
    }
    int result = real_create_module(device, &ours, memory, out);
    free(code);
    return result;
}

// The memory that the driver has given.
static struct {
    uint64_t memory, bytes;
} given[4096];
static uint64_t given_bytes;
static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;

// Takes bytes away from memory that is given back, or notes those of memory that is given.
static void note(uint64_t from, uint64_t to, uint64_t bytes) {
    pthread_mutex_lock(&given_lock);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i].memory == from) {
            given_bytes += bytes - given[i].bytes;
            given[i].memory = to;
            given[i].bytes = bytes;
            break;
        }
    }
    pthread_mutex_unlock(&given_lock);
}

static int (*real_allocate)(void *, const struct Allocation *, const void *, uint64_t *);
static int allocate(void *device, const struct Allocation *info, const void *memory, uint64_t *out) {
    count(ALLOCATIONS);
    const char *faults = getenv("VULKAN_FAULTS"), *most = faults ? strstr(faults, "memory=") : NULL;
    if (asked("full", 0)) return OUT_OF_MEMORY;
    if (most && given_bytes + info->bytes > strtoull(most + strlen("memory="), NULL, 10) << 20) return OUT_OF_MEMORY;
    int result = real_allocate(device, info, memory, out);
    if (result == 0) note(0, *out, info->bytes);
    return result;
}

static void (*real_release)(void *, uint64_t, const void *);
static void release(void *device, uint64_t memory, const void *allocator) {
    if (memory) note(memory, 0, 0);
    real_release(device, memory, allocator);
}

static int (*real_create_buffer)(void *, const struct Buffer *, const void *, uint64_t *);
static int create_buffer(void *device, const struct Buffer *info, const void *memory, uint64_t *out) {
    count(BUFFERS);
    int is_upload = info->usage == COPIED_FROM && info->bytes >= LONG;
    if (asked("full", 0) || asked("refuse", 1) || (has("uploads") && is_upload)) return OUT_OF_MEMORY;
    return real_create_buffer(device, info, memory, out);
}

static Function device_function(void *device, const char *name);

static const struct {
    const char *name;
    void *real, *ours;
} FUNCTIONS[] = {
    {"vkCreateInstance", &real_create_instance, create_instance},
    {"vkCreateDevice", &real_create_device, create_device},
    {"vkGetPhysicalDeviceProperties", &real_properties, properties},
    {"vkGetPhysicalDeviceProperties2", &real_properties2, properties2},
    {"vkGetPhysicalDeviceProperties2KHR", &real_properties2, properties2},
    {"vkEnumerateDeviceExtensionProperties", &real_extensions, extensions},
    {"vkGetDeviceProcAddr", &real_of_device, device_function},
    {"vkCmdDispatch", &real_dispatch, dispatch},
    {"vkQueueSubmit", &real_submit, submit},
    {"vkQueueWaitIdle", &real_wait_idle, wait_idle},
    {"vkWaitSemaphores", &real_wait, wait_semaphores},
    {"vkWaitSemaphoresKHR", &real_wait, wait_semaphores},
    {"vkCreateShaderModule", &real_create_module, create_module},
    {"vkAllocateMemory", &real_allocate, allocate},
    {"vkFreeMemory", &real_release, release},
    {"vkCreateBuffer", &real_create_buffer, create_buffer},
};

// Ours in place of a function of the driver.
static Function replaced(const char *name, Function found) {
    for (size_t i = 0; found && i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        if (strcmp(name, FUNCTIONS[i].name) == 0) {
            *(Function *)FUNCTIONS[i].real = found;
            return (Function)FUNCTIONS[i].ours;
        }
    }
    return found;
}

static Function device_function(void *device, const char *name) {
    return replaced(name, real_of_device(device, name));
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
    static const char *const PATHS[] = {"/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "/usr/lib/aarch64-linux-gnu/libvulkan.so.1",
                                        "/usr/lib64/libvulkan.so.1", "/usr/lib/libvulkan.so.1"};
    for (size_t i = 0; !real_of_instance && i < sizeof PATHS / sizeof *PATHS; i++) {
        void *loader = dlopen(PATHS[i], RTLD_NOW | RTLD_LOCAL);
        if (loader) real_of_instance = (Lookup)dlsym(loader, "vkGetInstanceProcAddr");
    }
    return real_of_instance ? replaced(name, real_of_instance(instance, name)) : NULL;
}
