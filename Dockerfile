# shiftbench on CPUs, with models in ONNX. The release workflow builds this image from the wheels in dist/:
#
#     python -m build --wheel && docker build -t shiftbench .
#     docker run --rm -v "$PWD:/data" shiftbench eval model.onnx --data photos/
FROM python:3.12-slim

COPY dist/*.whl /tmp/wheels/
RUN useradd --create-home --uid 1000 shiftbench \
    && wheel="$(ls /tmp/wheels/*.whl | grep -e "linux.*$(uname -m)" -e none-any | head -n 1)" \
    && python -m pip install --no-cache-dir "${wheel}[onnx,figures,web,openvino]" \
    && rm -r /tmp/wheels

USER shiftbench
WORKDIR /data
ENTRYPOINT ["shiftbench"]
CMD ["--help"]
