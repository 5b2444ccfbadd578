"""FastStream's RedisBroker on the plain port."""
import with_faststream
from faststream.redis import RedisBroker

if __name__ == "__main__":
    with_faststream.main(RedisBroker)
