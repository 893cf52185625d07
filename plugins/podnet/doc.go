// Package podnet turns the Nodes of a cluster and the requests of a container runtime (CNI) into values: the interfaces, addresses, routes,
// neighbours and tunnels of a node's VPP and of its kernel. It is the node's network behind plugins/cni.
//
//	network namespaces of pods          VPP of the node                            network stack of the node
//	┌──────┐                     ┌─────────────────────────────┐   host link     ┌───────────────────────────┐
//	│ eth0 ├─ veth ─ af_packet ──┤ pod:…      169.254.1.1      ├─ veth ──────────┤ contiv-host   first address│
//	└──────┘                     │            of every pod     │                 │               of podCIDR   │
//	┌──────┐                     │                             │   underlay      │                           ├─ NIC
//	│ eth0 ├─ veth ─ af_packet ──┤ pod:…      overlay ─ VXLAN ─┼─ veth ──────────┤ contiv-vxlan ─ UDP 4789   │
//	└──────┘                     └─────────────────────────────┘                 └───────────────────────────┘
//
// The NIC, its addresses and its routes stay the kernel's.
//
// Invariant: the values depend on the Nodes, the attachments and the settings only, not on the order in which they arrived.
package podnet
