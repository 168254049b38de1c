# An image that profiles a server: install yours into it, and name its command.
#
#   docker build --tag mcp-probe .
#   docker run --rm -i -v "$PWD/reports:/reports" mcp-probe run --output /reports/report.txt -- my-server
#
# The base image is named by its tag, since digests differ by registry; pin yours with --build-arg PYTHON=python@sha256:….
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY mcp_probe ./mcp_probe
# The pure wheel needs no compiler. A wheel from dist/ (make wheels) brings the accelerator.
RUN MCP_PROBE_BUILD=pure pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${PYTHON}
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin probe \
    && mkdir /reports && chown probe:probe /reports
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index /wheels/*.whl && rm -r /wheels
USER 10001:10001
WORKDIR /home/probe
VOLUME ["/reports"]
ENTRYPOINT ["mcp-probe"]
CMD ["--help"]
