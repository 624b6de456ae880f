// A libvulkan.so.1 before the real one, whose driver fails in the ways that the variable VULKAN_FAULTS names, separated by spaces:
//
//   discrete      the processor is shown as a discrete GPU
//   fast          what measures the bandwidth of memory takes no time
//   instance      there is no instance
//   refuses       no device is opened
//   old           the driver knows Vulkan 1.0 only, without extensions
//   few           fewer constants for a kernel than ours have
//   wrong         no kernel does anything
//   small         buffers of kernels have at most 4 MiB
//   lost          the device is lost with the first submit
//   memory=MIB    there is no memory beyond so many MiB
//   uploads       there is no memory for long buffers from which the host's bytes are copied
//
// Files in the folder VULKAN_REQUESTS ask for faults while the program runs:
//
//   lose          is removed, and the open device is lost
//   refuse        is removed, and there is no memory for one buffer
//   full          while it is there, there is no memory
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = -2, INITIALIZATION_FAILED = -3, DEVICE_LOST = -4, DISCRETE = 2, READ_BLOCKS = 4096, COPIED_FROM = 1, LONG = 1 << 16 };

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
    return real_create_device(physical, info, memory, device);
}

static void alter(struct Properties *properties) {
    if (has("discrete")) properties->type = DISCRETE;
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
static int submit(void *queue, uint32_t count, const void *submits, void *fence) {
    return is_lost() ? DEVICE_LOST : real_submit(queue, count, submits, fence);
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
