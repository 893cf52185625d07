// Package kube runs the agent beside the real Kubernetes: an etcd, an API server, controllers and a kube-proxy, built from their own
// modules (peers), each a process of its own on loopback. It is a module of its own so that the product never imports any of them.
//
//	etcd ◀── kube-apiserver ◀──┬── kube-controller-manager   Deployments → Pods, EndpointSlices
//	                           ├── the kubelet of this package Pods → bound, running, ready, with an interface in the node's sim;
//	                           │                               exec in them → packets through the sims
//	                           ├── kube-proxy                  in a network namespace, beside which the agent is measured
//	                           ├── conformance                 the suite of network-policy-api, as it is
//	                           └── contiv-agent run            ── binary API ──▶ sim, or a real VPP
//
// Tests run it, and for people Demo (make run KUBE=1). Of a test that fails the ends of its programs' logs are shown, then why it failed;
// CONTIV_KUBE_LOGS names a folder for the whole logs.
//
// Invariant: what is measured or compared is seen from outside, at the kernel's or VPP's side of a program, never told by the program.
package kube
