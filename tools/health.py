"""Ask a Flower process whether it serves: exit 0 if it does. For the images' health checks."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING


def main() -> int:
    """Return the exit code: 0 serving, 1 not."""
    with grpc.insecure_channel(sys.argv[1]) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=4)
        except grpc.RpcError:
            return 1
    return 0 if answer.status == SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
