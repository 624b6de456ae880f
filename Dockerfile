# syntax=docker/dockerfile:1
# A static binary in an image without shell and package manager.
#
#   docker build -t millrace .
#   docker run -p 8420:8420 -v millrace:/data -e MILLRACE_API_KEY=... millrace
#   docker exec CONTAINER /millrace pull qwen3:0.6b
#
# `docker stop` must wait for server.drain_timeout_ms: `--stop-timeout 25`.
FROM rust:1-alpine AS build
# hadolint ignore=DL3018
RUN apk add --no-cache musl-dev
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --release --locked --package millrace --features otlp \
    && strip -o /millrace target/release/millrace \
    && mkdir -p /data/models /data/journal

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /millrace /millrace
COPY --from=build /source/LICENSE-MIT /source/LICENSE-APACHE /licenses/
COPY --from=build --chown=65532:65532 /data /data
# Any address but loopback requires API keys (MILLRACE_API_KEY, or MILLRACE_KEYS_FILE), or MILLRACE_SERVER_NO_AUTH.
ENV MILLRACE_SERVER_BIND=0.0.0.0:8420 \
    MILLRACE_MODELS_DIRECTORIES=/data/models \
    MILLRACE_JOURNAL_DIRECTORY=/data/journal
USER 65532:65532
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --start-interval=2s --retries=3 \
    CMD ["/millrace", "health", "--quiet"]
ENTRYPOINT ["/millrace"]
CMD ["serve"]
