# syntax=docker/dockerfile:1
# A static binary in an image without anything else.
#
#   docker build -t millrace .
#   docker run --stop-timeout 45 -p 8420:8420 -v millrace:/data -e MILLRACE_API_KEY=... millrace
#   docker exec CONTAINER /millrace pull qwen3:0.6b
#
# `docker stop` must wait for server.drain_timeout_ms and the journal: `--stop-timeout 45`.
#
# The toolchain is the workspace's `rust-version`; RELEASING.md says how the digest is checked and changed.
FROM docker.io/library/rust:1.95.0-alpine3.23@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
# hadolint ignore=DL3018
RUN apk add --no-cache musl-dev
WORKDIR /source
COPY . .
# The toolchain of the image, whatever rust-toolchain.toml says.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --profile packaged --locked --package millrace \
    && strip -o /millrace target/packaged/millrace \
    && cargo run --locked --package xtask -- dist --licenses /licenses/THIRD-PARTY-LICENSES.txt \
    && cp LICENSE-MIT LICENSE-APACHE /licenses/ \
    && mkdir -p /data/models /data/journal /data/packed /data/prompts /empty

FROM scratch
COPY --from=build /millrace /millrace
COPY --from=build /licenses /licenses
COPY --from=build --chown=65532:65532 /data /data
COPY --from=build --chown=65532:65532 /empty /tmp
# For TLS to NATS and to webhooks of an authority of one's own; downloads use those in the binary.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# Any address but loopback requires API keys (MILLRACE_API_KEY, or MILLRACE_KEYS_FILE), or MILLRACE_SERVER_NO_AUTH.
ENV MILLRACE_SERVER_BIND=0.0.0.0:8420 \
    MILLRACE_MODELS_DIRECTORIES=/data/models \
    MILLRACE_MODELS_PACKED_CACHE_DIRECTORY=/data/packed \
    MILLRACE_CACHE_DISK_DIRECTORY=/data/prompts \
    MILLRACE_JOURNAL_DIRECTORY=/data/journal \
    XDG_DATA_HOME=/data
USER 65532:65532
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --start-interval=2s --retries=3 \
    CMD ["/millrace", "health", "--quiet"]
ENTRYPOINT ["/millrace"]
CMD ["serve"]
