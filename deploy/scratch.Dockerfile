# The image of the Dockerfile at the top, from a static binary that is there already, without a base image to fetch.
#
#   mkdir -p image/data/models image/data/journal
#   cp target/x86_64-unknown-linux-musl/release/millrace LICENSE-MIT LICENSE-APACHE image/
#   buildah bud --format docker --isolation chroot -f deploy/scratch.Dockerfile -t millrace image
FROM scratch
COPY --chmod=755 millrace /millrace
COPY LICENSE-MIT LICENSE-APACHE /licenses/
COPY --chown=65532:65532 data /data
ENV MILLRACE_SERVER_BIND=0.0.0.0:8420 \
    MILLRACE_MODELS_DIRECTORIES=/data/models \
    MILLRACE_JOURNAL_DIRECTORY=/data/journal
USER 65532:65532
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --retries=3 CMD ["/millrace", "health", "--quiet"]
ENTRYPOINT ["/millrace"]
CMD ["serve"]
