package cnat

// Differences between the releases of VPP from 24.06 to 26.06 (facts.newer: the plugin's API is 1.0.0, not 0.3.0):
//
//	                    24.06 to 25.10                     26.06
//	source policy       always one, without an address     none before it has an address
//	its kind            stays when the address goes        goes with the address
//	one address less    a message has all addresses        an address that a message lacks stays, unless the policy ends
//	tables              with and without a policy          with a policy only; the policy is new when the first table is empty
//	feature nodes       input and output                   and those of cnat_interface.go from cnatNodes on
//	route to an address not asked for                      VPP would drop packets by it, so the agent asks for none
//
// The check at connect needs no message of the plugin, which may be missing.
