# What happens to a packet? A line for each backend, then the path through VPP.
contiv-agent trace guestbook/client guestbook/redis-leader:6379 --manifests examples/guestbook

# Which pods reach the database? x is dropped.
contiv-agent trace --manifests examples/guestbook --matrix --port 6379/TCP

# A proof for all packets: is the database closed to DNS? And to the client?
contiv-agent verify --manifests examples/guestbook --never 'pod:kube-system/coredns-1 -> service:guestbook/redis-leader:6379/TCP'
contiv-agent verify --manifests examples/guestbook --never 'pod:guestbook/client -> service:guestbook/redis-leader:6379/TCP'
