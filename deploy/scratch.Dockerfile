# The image of the Dockerfile at the top, from a static binary that is there already, without a base image to fetch.
#
#   cargo xtask dist
#   mkdir -p image/data/models image/data/journal image/data/packed image/data/prompts image/tmp
#   cp target/dist/tree/millrace-*/{millrace,LICENSE-MIT,LICENSE-APACHE,THIRD-PARTY-LICENSES.txt} image/
#   buildah bud --format docker --isolation chroot -f deploy/scratch.Dockerfile -t millrace image
FROM scratch
COPY --chmod=755 millrace /millrace
COPY LICENSE-MIT LICENSE-APACHE THIRD-PARTY-LICENSES.txt /licenses/
COPY --chown=65532:65532 data /data
COPY --chown=65532:65532 tmp /tmp
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
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --retries=3 CMD ["/millrace", "health", "--quiet"]
ENTRYPOINT ["/millrace"]
CMD ["serve"]
