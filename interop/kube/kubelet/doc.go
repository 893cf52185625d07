// Package kubelet turns the Pods of one node into processes: a kubelet and its container runtime without containers and without images.
//
//	API server ──Pods──▶ Kubelet ──▶ worker (one for each Pod) ──▶ network    libcni ──▶ contiv-cni ──▶ the node's agent
//	     ▲                  │            │                    ──▶ container  a process in the Pod's network namespace
//	     └──── status ──────┼────────────┘                    ──▶ prober     startup, liveness, readiness
//	     ──── exec, logs, ──┴──▶ server (HTTPS at the node's address, for the API server's certificate only)
//	          port-forward
//
// An image is a program of this machine by a name. A container sees the machine's folders of programs and libraries, read-only, in a
// separate root, with its volumes, its DNS and its host name. A privileged container on the node's network sees the machine itself.
//
// Invariant: a container's process starts after ADD of its Pod has succeeded, and DEL of a Pod begins after its last process has ended.
package kubelet
