// Package kube runs the agent beside the real Kubernetes: an etcd, an API server, controllers, a scheduler and a kube-proxy, built from
// their own modules (peers), each in a separate process. It is a separate module, so that the product never imports any of them.
//
//	etcd ◀── kube-apiserver ◀──┬── kube-controller-manager   Deployments → Pods, EndpointSlices
//	                           ├── kube-scheduler
//	                           ├── site: nodes in network namespaces, each with the kubelet of package kubelet, a VPP and an agent; Pods are processes
//	                           ├── realSite (tests, tag nodes) nodes with the real kubelet, containerd and runc, on which deploy is installed
//	                           ├── fakeKubelet (tests)         Pods → bound, running, ready, with an interface in the node's sim;
//	                           │                               exec in them → packets through the sims
//	                           ├── kube-proxy                  in a network namespace, beside which the agent is measured
//	                           ├── conformance                 the unchanged suite of network-policy-api
//	                           ├── e2e (tag nodes)             Kubernetes' own tests of Services and network policies, unchanged, on realSite
//	                           └── contiv-agent run            ── binary API ──▶ sim, or a real VPP
//
// Tests run it, and Demo for people (make run KUBE=1). If a test fails, it prints the ends of its programs' logs and then
// the error; CONTIV_KUBE_LOGS names a folder for the whole logs.
//
// Invariant: measurements and comparisons use a view from outside, at the kernel's or VPP's side of a program, never the
// program's own report.
package kube
