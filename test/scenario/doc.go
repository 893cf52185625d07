// Package scenario turns stories in testdata/*.txtar into clusters of agents and simulated VPPs, and checks their
// configuration and the fate of packets. Invariant: a story does not depend on time, on chance or on the machine.
//
// A story is a testscript: commands first, files after them. It can also use the files of testdata/shared. Manifests are
// read as `contiv-agent run` reads them.
//
//	agent KEY=VALUE …          configures all agents, running ones from their next start on: weight=N, proxy-name=NAME, snat=off,
//	                           renderer=nat44|cnat|auto, maglev=on, terminating=keep, node-ports=primary or CIDR,…,
//	                           external-ip-cidrs=CIDR,…, policies=off, hold-removals=PERCENT (from 2 removals on, for 2 minutes),
//	                           quarantine=on. All nodes share the last two
//	apply FILE …               creates or replaces the objects of manifests
//	delete FILE … | KIND NS/NAME   removes objects
//	dump NODE [SECTION]        prints VPP's configuration, or only the lines with SECTION and those that belong to them
//	pkt FROM PROTO TO => delivered|rejected|dropped|error [ADDR,…] [from SOURCE,…] [because TEXT …]
//	                           one connection, for every choice of the load balancers: the receivers and the source that they see
//	trace FILE                 questions, one in JSON per line, and their answers
//	connect NAME FROM PROTO TO [ADDR]   opens a connection that stays, to that backend
//	still NAME                 it reaches the same backend as before; with !, it does not
//	fail NODE MESSAGE RETVAL|cut [TIMES]   VPP refuses that message with retval, or cuts the connection; 0: no longer
//	restart-vpp [NODE]         VPP loses everything except its interfaces and their routes
//	stop-agent [NODE]          VPP continues without its agent
//	restart-agent [NODE]       the agent restarts with only its journal
//	advance DURATION           advances the clocks of all VPPs and agents
//	lethal NODE [TEXT]         VPP ends whenever it gets a request with that text; without a text: no longer
//	held                       prints the removals that the agents hold
//	release                    carries them out, ends quarantines, and prints both
//	clear-log [NODE]           clears the log of requests
//	writes NODE N              checks that N requests since then changed VPP
//	log NODE                   prints those requests
//	foreign NODE COMMAND …     another program configures VPP: map|lb PROTO EXTERNAL LOCAL …, route PREFIX INTERFACE
//	status NODE [SERVICE]      prints the agent's status
//	health NODE SERVICE        prints the answer to load balancers about a Service there (spec.healthCheckNodePort)
//
// FROM is pod:<ns>/<name>, node:<name> or external:<ip>@<node>; a name alone is a pod of namespace default. TO is
// <ip>:<port>, pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>; the namespace default is optional.
//
// `go test ./test/scenario -update` rewrites the files that cmp compares with.
package scenario
