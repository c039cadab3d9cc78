# The image of operator and workers: the program, the libraries that it is linked to, certificates, an empty /tmp. Nothing else is in
# it, and it runs as a user that is nobody. `make image` packs the same files without a container engine.
#
#   docker build --build-arg COMMIT=$(git rev-parse --short HEAD) -t tidemark .
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake
WORKDIR /src
COPY . .
ARG COMMIT=unknown
ENV TIDEMARK_COMMIT=$COMMIT
RUN cargo build --release --locked && e2e/cluster/image target/release/tidemark --root /image

FROM scratch
COPY --from=build /image /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/tidemark"]
