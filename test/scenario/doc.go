// Package scenario turns short stories in testdata/*.txtar into clusters of agents and simulated VPPs and checks what is
// configured and where packets go. Its invariant: nothing in a story depends on time, on chance or on the machine.
//
// A story is a testscript: commands first, files after them. The files of testdata/shared are there, too. Manifests are
// read as `contiv-agent run` reads them.
//
//	agent KEY=VALUE …          configures all agents, those that run from their next start on: weight=N, proxy-name=NAME, snat=off,
//	                           renderer=nat44|cnat|auto, maglev=on, terminating=keep, node-ports=primary or CIDR,…,
//	                           external-ip-cidrs=CIDR,…, policies=off
//	apply FILE …               puts the objects of manifests
//	delete FILE … | KIND NS/NAME   removes objects
//	dump NODE [SECTION]        VPP's configuration; of it, the lines that hold SECTION, with what belongs to them
//	pkt FROM PROTO TO => delivered|rejected|dropped|error [ADDR,…] [from SOURCE,…] [because TEXT …]
//	                           one connection, over every choice of the load balancers: who gets it and what they see
//	trace FILE                 questions, one in JSON per line, and their answers
//	connect NAME FROM PROTO TO [ADDR]   opens a connection that stays, to that backend
//	still NAME                 it reaches the same backend as before; with !, it does not
//	fail NODE MESSAGE RETVAL|cut [TIMES]   VPP refuses that message with retval, or cuts the connection; 0: no longer
//	restart-vpp [NODE]         VPP loses everything but its interfaces and their routes
//	stop-agent [NODE]          VPP goes on without its agent
//	restart-agent [NODE]       the agent starts anew and knows nothing but its journal
//	advance DURATION           the clocks of all VPPs and agents go on
//	clear-log [NODE]           forgets the requests so far
//	writes NODE N              so many requests since then changed VPP
//	log NODE                   those requests
//	foreign NODE COMMAND …     somebody else configures VPP: map|lb PROTO EXTERNAL LOCAL …, route PREFIX INTERFACE
//	status NODE [SERVICE]      what the agent says
//	health NODE SERVICE        what load balancers are told of a service there (spec.healthCheckNodePort)
//
// FROM is pod:<ns>/<name>, node:<name> or external:<ip>@<node>; the name alone means a pod of namespace default. TO is
// <ip>:<port>, pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>, the namespace default may be left out.
//
// `go test ./test/scenario -update` rewrites the files that cmp compares with.
package scenario
