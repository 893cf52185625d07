# contiv-agent: `make` prints what there is.
SHELL := /bin/bash -o pipefail
GO    ?= go
TOOL  := $(GO) tool -modfile=tools/go.mod
BIN   := bin/contiv-agent
# The program, its tests and its checks are built without cgo and with the same tags: the go command compiles each package once for all of them. Only the
# race detector needs cgo, and so a C compiler. make lint does what vet does.
PLAIN := CGO_ENABLED=0 $(GO)
TEST  := $(PLAIN) test -tags grpcnotrace -vet=off
# Without the tables of a debugger, which take the linker five times as long as all else, and the compiler a seventh of its time: make build LINK= has them.
LINK  := -w
# In the environment, so that every go command has them, also those in scripts and tests: the go command compiles each package once for all of them.
TABLES := -gcflags=all=-dwarf=false
export GOFLAGS := $(strip $(if $(LINK),$(TABLES)) $(filter-out $(TABLES),$(shell $(GO) env GOFLAGS 2>/dev/null)))
# The modules beside the product, which have peers and tools: with the same flags, for the same reason.
BESIDE := GOFLAGS="$(GOFLAGS) -mod=mod -buildvcs=false" GONOSUMDB="github.com/projectcalico/*" CGO_ENABLED=0 $(GO)
APART  := $(BESIDE) test -tags grpcnotrace -vet=off
RACE  := CGO_ENABLED=1 $(GO) test -race -vet=off
# What `make run` runs on; `make run MANIFESTS=dir NODE=name ONCE=1`. KUBE=1: a real API server instead, and three nodes with pods.
MANIFESTS ?= examples/guestbook
NODE      ?= node-1
ONCE      ?=
ETCD      ?=
KUBE      ?=
COUNT     ?= 10
CASES     ?= 5000
HUBBLE_CASES ?= 1000
SEED      ?=
NODES     ?= 200
SHORT     ?=
RECORD    ?=
CPU       ?= 10m
FOCUS     ?=
PART      ?=
PROCS     ?=
TARGETS   ?=
SEEDS     ?= 100
ONLY      ?=
AGAIN     ?= 1
NIGHT     ?= 0
DAYS      ?= 0
JOBS      ?= 1
IDLE      ?=
PAGES     ?=
VERSION   ?=
URL       ?=

.DEFAULT_GOAL := help
.PHONY: help build run test race newuser wide fleet oracle adversary adversary-fixes simulate check bench shape words vpp-test versions vpp-demo sim-test etcd-test monitoring-test interop interop-hubble interop-cni interop-bench fanout-bench e2e e2e-nodes e2e-wide felix-e2e load-bench pods-bench flows-bench kubeproxy-bench bench-peers pictures pictures-test docs-site docs-test gen update stress fmt fuzz lint vuln release sbom gosec chart man ui browser-test

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/contiv-agent and bin/contiv-cni
	@mkdir -p bin
	GO=$(GO) CGO_ENABLED=0 ./tools/build.sh $(BIN) -tags grpcnotrace -ldflags=$(LINK) ./cmd/contiv-agent
	GO=$(GO) CGO_ENABLED=0 ./tools/build.sh bin/contiv-cni -tags grpcnotrace -ldflags '-s -w' ./cmd/contiv-cni

run: $(if $(KUBE),build bin/kube,build $(if $(ETCD),bin/etcd)) ## the agent on examples/guestbook with the embedded VPP (ONCE=1: end after the first sync; ETCD=1: and with an etcd; KUBE=1: three nodes of a real API server, with pods as processes; root)
	$(if $(KUBE),cd interop/kube && exec ../../bin/kube $(if $(ONCE),-once),$(if $(ETCD),bin/etcd -node $(NODE) --) $(BIN) run --sim --manifests $(MANIFESTS) --node $(NODE) --demo $(if $(ONCE),--once,--grpc-socket auto --grpc-db '' --flows 1s --ui-listen auto))

ui: ## a page of the agent of this node (docs/ui.md); make run serves one
	$(BIN) ui

.PHONY: bin/kube
bin/kube: build # a real API server, kubelets and the guestbook's programs, from a module of its own
	cd interop/kube && GO=$(GO) GOFLAGS="$(GOFLAGS) -mod=mod -buildvcs=false" CGO_ENABLED=0 ../../tools/build.sh ../../bin/kube -tags grpcnotrace -ldflags=$(LINK) ./demo
	cd interop/kube && GO=$(GO) GOFLAGS="$(GOFLAGS) -mod=mod -buildvcs=false" CGO_ENABLED=0 ../../tools/build.sh ../../bin/guestbook -tags grpcnotrace -ldflags=$(LINK) ./guestbook

.PHONY: bin/etcd
bin/etcd: # an etcd of one member, from a module of its own
	@mkdir -p bin
	cd tools/etcd && GO=$(GO) CGO_ENABLED=0 ../build.sh ../../bin/etcd -mod=mod -tags grpcnotrace -ldflags=$(LINK) .

# Compilers and tests whose heaps may grow five times before they are collected need a fifth less of the processor, and more memory.
TEST_GOGC ?= 400

test: ## the tests, with fewer random cases and without the race detector: minutes the first time, then only what changed (make check: all)
	GOGC=$(TEST_GOGC) $(TEST) -short -timeout 10m -p 4 ./... # more at a time than cores: those with processes mostly wait

race: ## the tests of packages that start goroutines, in random order, with the race detector (it needs a C compiler)
	CGO_ENABLED=1 GO=$(GO) tools/race.sh -vet=off -timeout 30m -shuffle=on -p 4 $$($(GO) run ./test/shape/goroutines .)

newuser: ## the commands of the README's section Try it and of the other pages, as they are written, by a shell
	CONTIV_NEWUSER=1 $(TEST) -count=1 -timeout 20m -v -run '^(TestReadme|TestDocs)$$' ./test/newuser/

wide: ## every story by every way, more random walks, worlds, faults and killed agents than the race detector leaves time for
	$(TEST) -timeout 30m -count=1 ./calc ./plugins/policy ./release ./renderer/acl ./source/convert ./test/adversary ./test/bench ./test/hostile ./test/replayed ./test/scenario ./test/simulate/powerloss ./test/simulate/sandbox ./test/transient ./test/verified ./vppagent ./vppagent/descriptor/nat/drain
	CONTIV_KEYS=200000 $(TEST) -timeout 30m -count=1 -run '^(TestManyKeys|TestErrorsOfBadInputAreShort)$$' ./plugins/extconfig
	$(TEST) -timeout 30m -count=1 -run '^TestKilledWhilePutting$$' ./cmd/contiv-agent
	@# a run uses one core
	CONTIV_SEED=101 CONTIV_SEEDS=100 $(TEST) -timeout 30m -count=1 -run '^TestSimulate$$' ./test/simulate & other=$$!; \
	  CONTIV_SEED=1 CONTIV_SEEDS=100 $(TEST) -timeout 30m -count=1 -run '^TestSimulate$$' ./test/simulate || { kill $$other; exit 1; }; wait $$other
	CONTIV_CHAOS_RUNS=500 $(TEST) -timeout 30m -count=1 -run '^TestKilledAtEveryStep$$' ./plugins/extconfig/grpc

fleet: ## NODES simulated agents behind one fan-out server that dies and comes back under change
	$(TEST) -count=1 -timeout 30m -v ./test/fleet -nodes $(NODES)

oracle: ## policies of 10,000 random clusters against the specifications, in both views; race detector off
	CONTIV_CASES=2500 $(TEST) -timeout 30m -count=1 -v -run '^TestLists$$' ./test/oracle/policy

adversary-fixes: ## what the adversary finds, and how soon, when one fix after the other is taken out
	CONTIV_FIXES=1 $(TEST) -count=1 -timeout 60m -v -run '^TestFixesAreNeeded$$' ./test/adversary

adversary: ## 100,000 sequences of packets against the policies of random clusters on simulated VPPs (CASES=n: so many; SEED=n: from there)
	CONTIV_CASES=$(if $(filter command line,$(origin CASES)),$(CASES),100000) $(if $(SEED),CONTIV_SEED=$(SEED)) $(TEST) -count=1 -timeout 60m -v -run '^TestAdversary$$' ./test/adversary

simulate: ## agents, simulated VPPs, an API source and clients under faults, in virtual time (SEED=n SEEDS=m: m seeds from n on; DAYS=1: each seed is a whole day; NIGHT=24: a night of so many hours after the faults; ONLY=3,7: these actions of the seed alone; AGAIN=20: each so many times)
	CONTIV_SEEDS=$(SEEDS) CONTIV_AGAIN=$(AGAIN) CONTIV_NIGHT=$(NIGHT) CONTIV_DAYS=$(DAYS) CONTIV_ONLY=$(ONLY) $(if $(SEED),CONTIV_SEED=$(SEED)) $(TEST) -count=1 -timeout 300m -v -run '^TestSimulate$$' ./test/simulate

check: lint vet-beside test race wide oracle ## what CI checks: format, vet, staticcheck, house rules, tests, policies of 10,000 clusters

fuzz: ## every fuzz target for CPU=10m of processor time (TARGETS="folder:Name ...", JOBS=1, IDLE=1: only time that nobody else wants); bin/fuzz has logs
	GO=$(GO) CPU=$(CPU) TARGETS="$(TARGETS)" JOBS=$(JOBS) IDLE=$(IDLE) ./tools/fuzz.sh

lint: ## gofumpt, vet, staticcheck, integer conversions
	@out=$$($(TOOL) gofumpt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); if [ -n "$$out" ]; then echo "gofumpt would change:"; echo "$$out"; exit 1; fi
	$(PLAIN) vet -tags grpcnotrace ./...
	CGO_ENABLED=0 $(TOOL) staticcheck -tags grpcnotrace ./...
	GO=$(GO) ./tools/gosec/g115.sh

vet-beside: ## the modules beside the product (peers, tools) compile against it, and vet finds nothing in them
	@for m in $$(git ls-files '*/go.mod' | xargs grep -l 'contiv-agent => ' | xargs dirname); do \
	  echo "vet $$m"; (cd $$m && $(BESIDE) vet -tags grpcnotrace,nodes,felix ./...) || exit 1; \
	done

shape: ## figures about the tree's size and structure (BEFORE=folder: beside those of another tree)
	@$(GO) run ./test/shape/print $(if $(BEFORE),$(abspath $(BEFORE))) $(CURDIR)

words: ## private idioms in comments and pages, by room (BEFORE=folder: beside those of another tree)
	@$(GO) run ./test/words/count $(if $(BEFORE),$(abspath $(BEFORE))) $(CURDIR)

fmt: ## format the tree
	$(TOOL) gofumpt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')

release: ## the files of a release, in dist: static programs for amd64 and arm64, image, chart, bills of materials, krew's manifest, checksums (VERSION=v1.2.3, or the commit's tag; URL: where they will be)
	rm -rf dist
	$(PLAIN) run -tags grpcnotrace ./release/make -version '$(VERSION)' -url '$(URL)'

sbom: build ## what bin/contiv-agent is built of, as CycloneDX, in bin/contiv-agent.cdx.json
	$(BIN) version --sbom > $(BIN).cdx.json

gosec: ## gosec on the packages of the program
	$(GO) tool -modfile=tools/gosec/go.mod gosec -quiet -exclude-generated ./...

vuln: ## known vulnerabilities in what we import (needs the vulnerability database)
	$(TOOL) govulncheck ./...

bench: ## benchmarks, with ratios; results go to bench/results
	./bench/run.sh

vpp-test: ## scenarios, random services and policies on a real VPP: CONTIV_VPP=/path/to/vpp make vpp-test
	@if [ -z "$$CONTIV_VPP" ]; then \
	  echo "skipped: CONTIV_VPP is not set; point it at a vpp binary (24.06 to 26.06, with the nat, acl, cnat, af_packet and vxlan plugins)"; \
	else \
	  CONTIV_VPP="$$CONTIV_VPP" $(TEST) -count=1 -parallel 6 -timeout 120m -v -run 'TestVPP|TestAgainstRealVPP' ./sim/ ./vppagent/ ./test/realvpp/ ./test/bench/; \
	fi

# Tests on the simulated VPP that make sim-test leaves out, because they take long (docs/testing.md).
SIM_SKIP = TestVPPTraffic$$|TestVPPVersions$$|TestVPPScenarios$$|TestVPPAccessSessions$$|TestVPPCleanup$$|TestVPPHostile$$|TestVPPConnections$$|TestVPPCNATAge$$|TestVPPDemo$$/^traffic$$|TestVPPClients$$/^nat44$$|TestVPPClients$$/^cnat$$

# Pods' networks and the other tests beside each other, because they mostly wait. The output of the former comes afterwards.
SIM_TEST = CONTIV_VPP=sim CONTIV_VPP_CASES=20 CONTIV_VPP_CLIENTS=40 CONTIV_VPP_KILLS=10 CONTIV_VPP_STRIDE=5 $(TEST) -count=1 -timeout 20m -v
SIM_PODS = TestVPPPodNetwork

sim-test: ## the tests of a real VPP on the simulated one, as a process with real packets (docs/testing.md; root, or unshare -Urn make sim-test)
	@log=$$(mktemp); $(SIM_TEST) -run '^$(SIM_PODS)' -skip '$(SIM_SKIP)' ./test/realvpp/ >$$log 2>&1 & pods=$$!; code=0; \
	  $(SIM_TEST) -run '^TestVPP' -skip '$(SIM_SKIP)|^$(SIM_PODS)' ./test/realvpp/ || code=1; \
	  wait $$pods || code=1; cat $$log; rm $$log; exit $$code

versions: ## agents replaced by those of the commit FORMER and back, under clients (CONTIV_VPP, or the simulated VPP; CONTIV_VPP_FORMER: a VPP of another version as well)
	@git rev-parse --quiet --verify '$(FORMER)^{commit}' >/dev/null || { echo "FORMER=$(FORMER) is no commit: make versions FORMER=COMMIT"; exit 1; }
	rm -rf bin/former && mkdir -p bin/former && git archive $(FORMER) | tar -x -C bin/former
	cd bin/former && CGO_ENABLED=0 $(GO) build -o ../contiv-agent-former ./cmd/contiv-agent
	rm -rf bin/former
	CONTIV_VPP=$${CONTIV_VPP:-sim} CONTIV_AGENT_FORMER=$(CURDIR)/bin/contiv-agent-former $(TEST) -count=1 -timeout 20m -v -run '^TestVPPVersions$$' ./test/realvpp/

vpp-demo: ## the guestbook as processes on nodes with a real VPP each (docs/demo.md): CONTIV_VPP=/path/to/vpp make vpp-demo
	@if [ -z "$$CONTIV_VPP" ]; then \
	  echo "skipped: CONTIV_VPP is not set; point it at a vpp binary (24.06 to 26.06, with the nat, acl, cnat, af_packet and vxlan plugins)"; \
	else \
	  CONTIV_VPP="$$CONTIV_VPP" CONTIV_DEMO_RECORD="$(RECORD)" $(TEST) -count=1 -timeout 15m -v -run '^TestVPPDemo$$' ./test/realvpp/; \
	fi

etcd-test: ## configuration from real etcds: embedded, and Debian's where it is installed; killed, compacted, slow, with TLS and users
	cd tools/etcd && $(APART) -count=1 -timeout 20m .

monitoring-test: ## the dashboard and the alert rules of deploy/monitoring, by Prometheus' parser: what they name is exported
	cd tools/monitoring && $(APART) -count=1 .

interop: interop-ligato interop-hubble ## the real Felix, Typha and an etcd as partners, ligato's clients, and CASES random clusters in both graphs (SEED=n: from there)
	cd interop && $(APART) -count=1 -timeout 30m -v -run '^Test' . -cases $(CASES) $(if $(SEED),-seed $(SEED))

.PHONY: interop-ligato
interop-ligato: # ligato's vpp-agent v2.5.1 as a witness: keys, encodings, and its client against an agent of ours
	cd interop/ligato && $(APART) -count=1 .

interop-hubble: ## Cilium's hubble, Hubble Relay and filters (built the first time) beside agents' flows: HUBBLE_CASES random requests (SEED=n: from there)
	cd interop/hubble && $(APART) -count=1 -timeout 30m -v . -cases $(HUBBLE_CASES) $(if $(SEED),-seed $(SEED))

interop-cni: ## the CNI plugin with the real libcni, cnitool, host-local and plugins of a chain, and killed at every step (CASES=n seeds, SEED=n: from there)
	cd interop/cni && $(APART) -count=1 -timeout 10m -v .
	CONTIV_CASES=$(if $(filter command line,$(origin CASES)),$(CASES),100) $(if $(SEED),CONTIV_SEED=$(SEED)) $(TEST) -count=1 -timeout 60m -run '^TestKilled$$' ./cmd/contiv-cni

interop-bench: ## time and heap against the real Felix, with ratios (SHORT=1: a taste, not recorded)
	SHORT=$(SHORT) GO=$(GO) ./bench/interop.sh

fanout-bench: ## our fan-out server beside the real Typha's, with bars (SHORT=1: a taste, not recorded)
	SHORT=$(SHORT) GO=$(GO) ./bench/fanout.sh

e2e: ## the agent with a real API server and its controllers (built the first time), which are killed, compacted and changed under it
	cd interop/kube && $(APART) -count=1 -parallel 2 -timeout 60m -v -run '^Test' ./... # those without traffic beside each other: they mostly wait

e2e-nodes: ## two nodes with the real kubelet, containerd and runc, which kubectl apply -k deploy/standalone alone brings from NotReady to pods that talk (root; built the first time, with libseccomp-dev; CONTIV_VPP; KILLS=100 and SEED=7: so many programs are killed instead of 6, from that seed on; SHORT=1: install, pods that talk, and kubectl delete alone)
	cd interop/kube && CONTIV_NODES_KILLS=$(KILLS) CONTIV_NODES_SEED=$(SEED) CONTIV_NODES_SHORT=$(SHORT) $(BESIDE) test -tags grpcnotrace,nodes -vet=off -count=1 -timeout 160m -v -run '^TestNodes$$' .

e2e-wide: ## Kubernetes' own tests of Services and network policies, and network-policy-api's suite, on the nodes of e2e-nodes; results as in docs/conformance/nodes.md (root; CONTIV_VPP; PART=kubernetes|network-policy-api, FOCUS=expression (of Kubernetes), POLICIES=expression (of network-policy-api): these alone; PROCS=4: so many tests at once)
	cd interop/kube && CONTIV_E2E_FOCUS='$(FOCUS)' CONTIV_E2E_POLICIES='$(POLICIES)' CONTIV_E2E_PROCS=$(PROCS) \
	  $(BESIDE) test -tags grpcnotrace,nodes -vet=off -count=1 -timeout 160m -v -run '^TestSuites$$$(if $(PART),/^$(PART)$$)' .

felix-e2e: ## the real Felix with our driver, as deploy/felix-driver has it, at a real API server (Felix is built, unless make interop has)
	cd interop/kube && $(BESIDE) test -tags grpcnotrace,felix -vet=off -count=1 -timeout 30m -v -run '^TestFelix$$' .

load-bench: ## one agent under 5,000 Services of 10 endpoints and changes of them, at a real API server
	GO=$(GO) ./bench/load.sh

pods-bench: ## from the creation of a Pod to its first answered request, with 110 Pods on its node (SHORT=1: a taste, not recorded; root); CONTIV_VPP as well
	SHORT=$(SHORT) GO=$(GO) ./bench/pods.sh

flows-bench: ## an agent's processor time at 1,000 new connections a second, with flows and without, and the time until a denial is shown (SHORT=1: a taste, not recorded; root); CONTIV_VPP as well
	SHORT=$(SHORT) GO=$(GO) ./bench/flows.sh

kubeproxy-bench: ## the agent beside kube-proxy (nftables), with bars (SHORT=1: a taste, not recorded); CONTIV_VPP as well
	SHORT=$(SHORT) GO=$(GO) ./bench/kubeproxy.sh

bench-peers: ## the agent beside kube-proxy, Felix, Typha and bare writers in one run; writes docs/benchmarks.md and its plots (PAGES="bench/results/….md …": from these records); CONTIV_VPP as well
	GO=$(GO) PAGES="$(PAGES)" ./bench/peers.sh

pictures: build ## draw the docs' pictures from their texts, and record the README's terminal session
	cd tools/pictures && $(BESIDE) build -o ../../bin/pictures .
	bin/pictures draw docs/pictures/*.drawing
	PATH="$(CURDIR)/bin:$$PATH" bin/pictures session docs/pictures/session.sh

pictures-test: build ## the docs' pictures, terminal session and benchmark page are what their sources make
	cd tools/pictures && $(APART) -count=1 .

browser-test: ## the page in a headless Chromium (Debian's package chromium; without one the tests say that they are skipped): keys, updates, filters, phones, dark mode
	cd tools/browser && $(APART) -count=1 -timeout 5m -v .

docs-site: ## the docs as a site in bin/site, which needs no network
	cd tools/site && $(BESIDE) run . ../.. ../../bin/site
	@echo "open bin/site/index.html"

docs-test: ## the site: no dead link, every page reached
	cd tools/site && $(APART) -count=1 .

.PHONY: goflags
goflags: # the flags of every go command here, for a shell: export GOFLAGS="$(make -s goflags)"
	@echo '$(GOFLAGS)'

gen: ## regenerate what is generated from proto/
	./tools/gen.sh

update: ## rewrite the golden files of the scenarios
	$(TEST) ./test/scenario -update

stress: ## the suite COUNT times, shuffled
	$(RACE) -shuffle=on -count=$(COUNT) ./...

chart: ## copy the manifests that the chart shares with the folders of deploy/
	./tools/chart.sh

man: build ## write the manual pages to docs/man, and docs/configuration.md
	$(BIN) docs man docs/man
	$(BIN) docs configuration docs/configuration.md
