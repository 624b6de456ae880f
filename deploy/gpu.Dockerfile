# syntax=docker/dockerfile:1
# A binary with support of GPUs in Debian, with the loader of Vulkan and Mesa's drivers (AMD, Intel, and a CPU's for tests).
#
#   docker build -t millrace-gpu -f deploy/gpu.Dockerfile .
#   docker run --stop-timeout 45 -p 8420:8420 -v millrace:/data -e MILLRACE_API_KEY=... --gpus all millrace-gpu
#   docker run --device /dev/dri --group-add "$(stat -c %g /dev/dri/renderD128)" ... millrace-gpu      (AMD, Intel)
#
# NVIDIA's driver comes from the host, by its container toolkit. RELEASING.md says how the bases are pinned by digest; both
# have the same release of Debian, so that the C library of the build is that of the image. Mesa of Debian 12 is too old: its
# driver for CPUs ends long loops early.
ARG BUILD_BASE=docker.io/library/rust:1.95.0-trixie
ARG BASE=docker.io/library/debian:trixie-slim
FROM ${BUILD_BASE} AS build
WORKDIR /source
COPY . .
# The toolchain of the image, whatever rust-toolchain.toml says.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --profile packaged --locked --package millrace --features gpu \
    && strip -o /millrace target/packaged/millrace \
    && cargo run --locked --package xtask -- dist --gpu --licenses /licenses/THIRD-PARTY-LICENSES.txt \
    && cp LICENSE-MIT LICENSE-APACHE /licenses/ \
    && mkdir -p /data/models /data/journal /data/packed /data/prompts

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libvulkan1 mesa-vulkan-drivers \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /millrace /millrace
COPY --from=build /licenses /licenses
COPY --from=build --chown=65532:65532 /data /data
# Any address but loopback requires API keys (MILLRACE_API_KEY, or MILLRACE_KEYS_FILE), or MILLRACE_SERVER_NO_AUTH.
ENV MILLRACE_SERVER_BIND=0.0.0.0:8420 \
    MILLRACE_MODELS_DIRECTORIES=/data/models \
    MILLRACE_MODELS_PACKED_CACHE_DIRECTORY=/data/packed \
    MILLRACE_CACHE_DISK_DIRECTORY=/data/prompts \
    MILLRACE_JOURNAL_DIRECTORY=/data/journal \
    XDG_DATA_HOME=/data
# What NVIDIA's container toolkit puts into the container: `graphics` has the driver of Vulkan.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
USER 65532:65532
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --start-interval=2s --retries=3 \
    CMD ["/millrace", "health", "--quiet"]
ENTRYPOINT ["/millrace"]
CMD ["serve"]
