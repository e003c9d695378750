# Carryon as a container: docs/image.md says how to run it.
#
# Any Debian with `python3` (3.11 or newer) and its `venv`. For production name a digest, so that a rebuild is the same:
#   docker build --build-arg BASE=python:3.11-slim-bookworm@sha256:… .
ARG BASE=python:3.11-slim-bookworm

# ---------------------------------------------------------------------------------------------------------------------
FROM ${BASE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY requirements.lock requirements-build.lock ./

# Tools and product live apart: what is copied into the image holds no pip and nothing of the build. A pip.conf of your own
# (a mirror, an authority) is handed over as a secret and is in no layer: --secret id=pip.conf,src=… --secret id=ca.pem,src=…
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    python3 -m venv /build/tools \
 && /build/tools/bin/pip install --require-hashes -r requirements-build.lock \
 && python3 -m venv --without-pip /opt/carryon \
 && /build/tools/bin/pip --python /opt/carryon/bin/python install --no-compile --require-hashes -r requirements.lock

# Of litellm its table of windows and its tokenizers are read; its code is never imported, and what is not there needs no mending.
RUN find /opt/carryon/lib/python3.*/site-packages/litellm -type f \
      ! -name model_prices_and_context_window_backup.json ! -path '*/litellm_core_utils/tokenizers/*' -delete \
 && find /opt/carryon/lib/python3.*/site-packages/litellm -type d -empty -delete

COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
COPY config/carryon.yaml config/
# Bytecode is never checked against its source: nothing in the image can change, and times of files need not survive.
# The configuration that the image brings says nothing: every line of config/carryon.yaml as a comment, so what a variable
# names (an upstream above all) stands alone, as it does without a file.
RUN /build/tools/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir dist . \
 && /build/tools/bin/pip --python /opt/carryon/bin/python install --no-compile --no-deps --no-index dist/*.whl \
 && /build/tools/bin/pip --python /opt/carryon/bin/python check \
 && /opt/carryon/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/carryon/lib \
 && mkdir /build/etc \
 && sed 's/^\([^#]\)/# \1/' config/carryon.yaml >/build/etc/carryon.yaml

# ---------------------------------------------------------------------------------------------------------------------
FROM ${BASE}

ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Carryon" \
      org.opencontainers.image.description="A reverse proxy for LLM APIs that carries an agent's conversation past the context window" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Python images come without the bytecode of the standard library, and a read-only root would compile it at every start.
# The state folder belongs to the user, and to group 0 for clusters that give every pod a number of its own.
RUN python3 -c 'import compileall, re, sysconfig; \
      compileall.compile_dir(sysconfig.get_path("stdlib"), quiet=1, workers=0, rx=re.compile("site-packages|lib2to3|/tests?/"))' \
 && groupadd --gid 10001 carryon \
 && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /var/lib/carryon --shell /usr/sbin/nologin carryon \
 && install -d -o 10001 -g 0 -m 0770 /var/lib/carryon

COPY --from=build /build/etc/carryon.yaml /etc/carryon/carryon.yaml
COPY --from=build /opt/carryon /opt/carryon

# Variables stand over the file, so a mounted configuration cannot move the ports away from EXPOSE and HEALTHCHECK, nor listen
# where nobody outside the container reaches it.
ENV PATH=/opt/carryon/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CARRYON_CONFIG=/etc/carryon/carryon.yaml \
    CARRYON_STATE_DIR=/var/lib/carryon \
    CARRYON_LISTEN__HOST=0.0.0.0 \
    CARRYON_LISTEN__PORT=8787 \
    CARRYON_ADMIN__HOST=0.0.0.0 \
    CARRYON_ADMIN__PORT=8788

# Written to are this volume and /tmp (the socket of the embedded store); the rest may be read-only.
VOLUME ["/var/lib/carryon"]
WORKDIR /var/lib/carryon
USER 10001:10001
EXPOSE 8787 8788
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import http.client, os; probe = http.client.HTTPConnection('localhost', int(os.environ['CARRYON_ADMIN__PORT']), timeout=4); probe.request('GET', '/livez'); raise SystemExit(probe.getresponse().status != 200)"]
ENTRYPOINT ["carryon"]
CMD ["serve"]
