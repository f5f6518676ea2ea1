# Everything a developer or CI does with lpuctl. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lpuctl-e2e
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
KUBERNETES_VERSION := $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' test/e2e/kubelet/tools/kubernetes/go.mod)
KUBERNETES := $(CACHE)/kubernetes-$(KUBERNETES_VERSION)
CONTAINERD := $(CACHE)/containerd-v2.4.2
OLD_CONTAINERD := $(CACHE)/containerd-v1.7.35
NPD_VERSION := $(shell awk '$$1 == "k8s.io/node-problem-detector" {print $$2}' test/e2e/kubelet/tools/node-problem-detector/go.mod)
NPD := $(CACHE)/node-problem-detector-$(NPD_VERSION)/node-problem-detector
NFD_VERSION := $(shell awk '$$1 == "sigs.k8s.io/node-feature-discovery" {print $$2}' test/e2e/kubelet/tools/nfd/go.mod)
NFD := $(CACHE)/node-feature-discovery-$(NFD_VERSION)
# The custom resources of the Prometheus operator.
MONITORING_VERSION := v0.85.0
MONITORING := $(CACHE)/prometheus-operator-$(MONITORING_VERSION)
PREVIOUS := $(CACHE)/lpuctl-$(shell packaging/previous)
CONTAINERD_PROGRAMS = $(addprefix $(1)/,containerd containerd-shim-runc-v2 ctr)
CONTAINERD_MORE := $(foreach tag,v1.6.20 v2.2.9,$(call CONTAINERD_PROGRAMS,$(CACHE)/containerd-$(tag)))
CONTAINERDS := $(foreach dir,$(CONTAINERD) $(OLD_CONTAINERD),$(call CONTAINERD_PROGRAMS,$(dir)))
NERDCTL_VERSION := v2.2.1
NERDCTL := $(CACHE)/nerdctl-$(NERDCTL_VERSION)/nerdctl
# podman's generator of units. Debian's podman is older than it.
QUADLET_VERSION := v5.4.2
QUADLET := $(CACHE)/quadlet-$(QUADLET_VERSION)/quadlet
GOARCH := $(shell go env GOARCH)
IMAGE = $(CURDIR)/dist/lpuctl-image-$(GOARCH).tar
DRA_IMAGE = $(CURDIR)/dist/lpuctl-dra-image-$(GOARCH).tar
GO_FILES = $(wildcard $(shell git ls-files -co --exclude-standard '*.go' go.mod go.sum)) # wildcard: not those just deleted
SHELL_FILES = $(wildcard $(shell git ls-files -co --exclude-standard '*.sh' '.ci/*' test/bare/run packaging/version packaging/previous packaging/install.sh 'packaging/check/*' 'packaging/deb/p*'))
FUZZTIME ?= 20s
comma := ,
HELM_VERSION := v4.3.1
# The releases of Helm that the chart is tried with; .ci/long takes the one before too, which some still have.
HELMS := $(addprefix $(CACHE)/helm-,$(addsuffix /helm,$(HELM_VERSION) $(if $(LPUCTL_LONG),v3.22.0)))
HELM_UNITTEST_VERSION := v1.1.2
HELM_UNITTEST := $(CACHE)/helm-unittest-$(HELM_UNITTEST_VERSION)/untt
# Debian's, or in .ci/long, because that takes minutes to build, a newer one.
DEBIAN_PROMETHEUS := $(CACHE)/prometheus-debian
NEW_PROMETHEUS := $(CACHE)/prometheus-v0.305.0
PROMETHEUS := $(if $(LPUCTL_LONG),$(NEW_PROMETHEUS),$(DEBIAN_PROMETHEUS)/usr/bin)
# The chart's version is that of the image that `make image` makes by default.
CHART_VERSION := $(shell awk '$$1 == "version:" {print $$2}' packaging/helm/lpuctl/Chart.yaml)
CHART := lpuctl-chart-$(CHART_VERSION).tgz
# grpcnotrace leaves out gRPC's tracing pages, which nobody serves and every start would initialise. nethttpomithttp2 leaves HTTP/2
# out of net/http: lpuctl serves metrics without TLS, so by HTTP/1.1 only. lpuctl-dra asks the API server by HTTP/2.
BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace$(if $(filter lpuctl lpuctl-top,$(@F)),$(comma)nethttpomithttp2) -ldflags '-s -w -X github.com/hyperaccel/lpuctl/cmd/internal/cli.version=$(VERSION)'
# Simulated servers are thousands of small files: in memory, where programs may be run there, tests take a quarter of the time.
MEMORY = $(shell d=$$(mktemp -d -p /dev/shm 2>/dev/null) && cp /bin/true $$d/ 2>/dev/null && $$d/true && echo /dev/shm; rm -rf "$$d")
# The race detector needs a C compiler; without one the tests run all the same.
RACE := $(if $(shell command -v $(or $(CC),cc) gcc),-race)

.DELETE_ON_ERROR: # half a tool is none

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/lpuctl bin/lpuctl-dra bin/lpuctl-top ## build bin/lpuctl, bin/lpuctl-dra and bin/lpuctl-top, the static binaries that are shipped

bin/%: $(GO_FILES)
	$(BUILD) -o $@ ./cmd/$*

.PHONY: image
image: materials-$(GOARCH) dra-materials-$(GOARCH) ## OCI images of lpuctl and lpuctl-dra of this architecture in dist/, without a daemon
	$(call MAKE_IMAGE,lpuctl) -o $(IMAGE) dist/$(GOARCH)
	$(call MAKE_IMAGE,lpuctl-dra) -o $(DRA_IMAGE) dist/dra/$(GOARCH)

.PHONY: demo
demo: bin/lpuctl ## the main job on a simulated Orion server: no hardware, no root
	@bin/lpuctl demo

.PHONY: test
test: ## unit tests, with the race detector where there is a C compiler: no root, no container tools
	@$(if $(RACE),:,echo "without the race detector: there is no C compiler (apt-get install gcc libc6-dev)")
	$(MEMORY:%=TMPDIR=%) go test -json -timeout 40m -parallel 4 $(RACE) ./... | go run ./test/report

.PHONY: test-dra
test-dra: ## what is published for DRA, on the allocator of Kubernetes' scheduler; the driver, on sockets as a kubelet uses them
	$(MEMORY:%=TMPDIR=%) go test -tags dra -json -count=1 -timeout 15m ./test/dra ./internal/dra/driver | go run ./test/report
	go test -tags dra -run '^$$' -bench . -benchtime 1000x ./test/dra

.PHONY: mutations
mutations: ## take each fix out that keeps lpuctl right over time, and want a test to fail (OF: only in these directories)
	$(MEMORY:%=TMPDIR=%) go run ./test/mutation $(OF)

.PHONY: golden
golden: bin/lpuctl bin/lpuctl-dra ## compare what both programs print and write with revision BASE, on twelve simulated nodes (WORDS=-words: also words)
	@$(if $(BASE),,$(error say which revision to compare with: make golden BASE=REVISION))
	@dir=$$(mktemp -d $(MEMORY:%=-p %)); export TMPDIR="$$dir"; \
	trap 'git worktree remove --force "$$dir/base" 2>/dev/null || true; rm -rf "$$dir"' EXIT; \
	git worktree add --quiet --detach "$$dir/base" $(BASE); \
	mkdir "$$dir/old"; ( cd "$$dir/base" && $(BUILD) -o "$$dir/old/" ./cmd/... ); \
	go build -o "$$dir/golden" ./test/golden; \
	"$$dir/golden" -lpuctl "$$dir/old/lpuctl" -trees "$$dir/trees" -o "$$dir/OLD"; \
	"$$dir/golden" -lpuctl bin/lpuctl -trees "$$dir/trees" -o "$$dir/NEW"; \
	"$$dir/golden" -compare $(WORDS) "$$dir/OLD" "$$dir/NEW"

.PHONY: bare
bare: ## the commands of README on a Debian that has nothing but Go, make and git (needs root and debootstrap)
	test/bare/run $(CACHE)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@go list -f '{{.Dir}}' ./... | while read -r dir; do \
	  { grep -hos 'func Fuzz[A-Za-z0-9]*' "$$dir"/*_test.go || true; } | sed 's/func //' | while read -r target; do \
	    echo "== $$target in $${dir#$(CURDIR)/}"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$dir"; \
	  done; done

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, shellcheck, formatting
	$(GOLANGCI) run ./...
	cd test/e2e && $(GOLANGCI) run --config ../../.golangci.yml ./...
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_FILES); else echo "lint: shellcheck is missing (apt-get install shellcheck)"; exit 1; fi

$(GOLANGCI):
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

# The CDI library in the releases that runtimes are built with, the first of them under its former path.
CDI_LIBRARIES := $(addprefix $(CACHE)/cdi-library/,v0.5.4 v1.1.1 $(basename $(notdir $(wildcard test/e2e/library/v*.mod))))

$(CACHE)/cdi-library/v0.5.4: test/e2e/library/former/main.go test/e2e/library/former/go.mod
	go build -C $(<D) -o $@ .

$(CACHE)/cdi-library/v1.1.1: test/e2e/library/main.go test/e2e/library/go.mod
	go build -C $(<D) -o $@ .

$(CACHE)/cdi-library/%: test/e2e/library/main.go test/e2e/library/%.mod
	go build -C $(<D) -modfile=$*.mod -o $@ .

# A Debian of what every Debian has. Without debootstrap or root there is none, and a test says so.
DEBIAN := $(CACHE)/root-bookworm-minbase
$(DEBIAN):
	@mkdir -p $(@D) && rm -rf $@.new
	@if [ "$$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then debootstrap --variant=minbase bookworm $@.new \
	  $$(apt-get indextargets --format '$$(SITE)' 'Created-By: Packages' 'Label: Debian' | sed -n 1p) && mv $@.new $@; fi

$(QUADLET): MODULE = github.com/containers/podman/v5@$(QUADLET_VERSION)
$(QUADLET):
	@go mod download $(MODULE)
	cd "$$(go env GOMODCACHE)/$(MODULE)" && $(TOOL_BUILD) -mod=readonly -ldflags '-s -w' ./cmd/quadlet

.PHONY: e2e
e2e: build $(CDI_LIBRARIES) $(QUADLET) $(DEBIAN) ## tests on real consumers (needs root; names what is missing)
	LPUCTL=$(CURDIR)/bin/lpuctl LIBRARIES=$(CACHE)/cdi-library QUADLET=$(QUADLET) DEBIAN=$(DEBIAN) \
	  go test -C test/e2e -json -count=1 -timeout 40m . | go run ./test/report

# Those that wait long, or for programs that take long to build.
LONG_OF_KUBELET := ^Test(NodeProblemDetector|NodeFeatureDiscovery)$$

.PHONY: e2e-kubelet
e2e-kubelet: build image ## tests of serve and of lpuctl-dra on a real kubelet (needs root and e2e-kubelet-tools)
	LPUCTL=$(CURDIR)/bin/lpuctl DRA=$(CURDIR)/bin/lpuctl-dra IMAGE=$(IMAGE) DRA_IMAGE=$(DRA_IMAGE) \
	  KUBERNETES=$(KUBERNETES) CONTAINERD=$(CONTAINERD) OLD_CONTAINERD=$(OLD_CONTAINERD) NPD=$(NPD) \
	  NFD=$(NFD) HELM=$(CACHE)/helm-$(HELM_VERSION)/helm MONITORING=$(MONITORING) PREVIOUS=$(PREVIOUS) \
	  go test -C test/e2e -json -count=1 -timeout 40m $(if $(LPUCTL_LONG),,-skip '$(LONG_OF_KUBELET)') ./kubelet | go run ./test/report

.PHONY: e2e-kubelet-tools
e2e-kubelet-tools: ## build what test/e2e/kubelet runs: kubelet, API server, containerd (once, 15 minutes)
e2e-kubelet-tools: $(addprefix $(KUBERNETES)/,kubelet kube-apiserver kube-controller-manager kube-scheduler kubectl etcd) $(CONTAINERDS)
e2e-kubelet-tools: $(CACHE)/helm-$(HELM_VERSION)/helm $(MONITORING)/crds.yaml $(PREVIOUS)/lpuctl-image.tar

.PHONY: e2e-kubelet-tools-long
e2e-kubelet-tools-long: ## what it runs besides with LPUCTL_LONG: node-problem-detector, node-feature-discovery (once, 4 minutes)
e2e-kubelet-tools-long: e2e-kubelet-tools $(NPD) $(addprefix $(NFD)/,crds.yaml nfd-worker nfd-master)

TOOL_BUILD = CGO_ENABLED=0 go build -p 2 -trimpath -buildvcs=false -o $@

$(KUBERNETES)/etcd:
	cd test/e2e/kubelet/tools/kubernetes && $(TOOL_BUILD) -ldflags '-s -w' go.etcd.io/etcd/server/v3

$(KUBERNETES)/%:
	cd test/e2e/kubelet/tools/kubernetes && $(TOOL_BUILD) -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' k8s.io/kubernetes/cmd/$*

$(NPD):
	cd test/e2e/kubelet/tools/node-problem-detector && $(TOOL_BUILD) -ldflags '-s -w' k8s.io/node-problem-detector/cmd/nodeproblemdetector

$(NFD)/crds.yaml:
	mkdir -p $(@D)
	cd test/e2e/kubelet/tools/nfd && install -m 644 "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/node-feature-discovery)/deployment/base/nfd-crds/nfd-api-crds.yaml" $@

$(NFD)/%:
	cd test/e2e/kubelet/tools/nfd && $(TOOL_BUILD) -ldflags '-s -w' sigs.k8s.io/node-feature-discovery/cmd/$*

$(MONITORING)/crds.yaml: MODULE = github.com/prometheus-operator/prometheus-operator@$(MONITORING_VERSION)
$(MONITORING)/crds.yaml:
	@go mod download $(MODULE)
	mkdir -p $(@D)
	cat "$$(go env GOMODCACHE)/$(MODULE)/example/prometheus-operator-crd/"*_{podmonitors,prometheusrules,servicemonitors}.yaml > $@

# From the history, with its own Makefile.
$(PREVIOUS)/lpuctl-image.tar:
	rm -rf $(@D) && packaging/previous $(@D)/source
	$(MAKE) --no-print-directory -C $(@D)/source image VERSION=previous IMAGE=$@

# containerd is built in its own module, with its own go.sum.
$(CONTAINERDS) $(CONTAINERD_MORE): TAG = $(patsubst containerd-%,%,$(notdir $(@D)))
$(CONTAINERDS) $(CONTAINERD_MORE): MODULE = github.com/containerd/containerd$(if $(filter v2.%,$(TAG)),/v2)
$(CONTAINERDS) $(CONTAINERD_MORE):
	@go mod download $(MODULE)@$(TAG)
	cd "$$(go env GOMODCACHE)/$(MODULE)@$(TAG)" && $(TOOL_BUILD) -mod=readonly -tags 'no_btrfs no_aufs' -ldflags '-s -w -X $(MODULE)/version.Version=$(TAG)' ./cmd/$(@F)

.PHONY: e2e-containerd
e2e-containerd: build ## tests of runtime check and of specs on real containerds (needs root and e2e-containerd-tools)
	LPUCTL=$(CURDIR)/bin/lpuctl TOOLS=$(CACHE) go test -C test/e2e -json -count=1 -timeout $(if $(LPUCTL_LONG),0,40m) ./containerd | go run ./test/report

.PHONY: e2e-containerd-tools
e2e-containerd-tools: ## build what test/e2e/containerd runs: containerd in four releases, nerdctl (once, 10 minutes)
e2e-containerd-tools: $(CONTAINERDS) $(CONTAINERD_MORE) $(NERDCTL)

# nerdctl's programs import helpers for tests from a module that is nowhere published, so it is built from a copy without those.
$(NERDCTL): MODULE = github.com/containerd/nerdctl/v2@$(NERDCTL_VERSION)
$(NERDCTL):
	@go mod download $(MODULE)
	mkdir -p $(@D) && rm -rf $(@D)/source && cp -r "$$(go env GOMODCACHE)/$(MODULE)" $(@D)/source && chmod -R u+w $(@D)/source
	cd $(@D)/source && rm -rf pkg/testutil mod cmd/nerdctl/helpers/testing*.go && find . -name '*_test.go' -delete && sed -i /tigron/d go.mod
	cd $(@D)/source && $(TOOL_BUILD) -mod=mod -ldflags '-s -w' ./cmd/nerdctl && rm -rf $(@D)/source

.PHONY: test-chart
test-chart: export DIGEST = sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
test-chart: export DRA_DIGEST = sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210
test-chart: build dist/test-chart/$(CHART) ## the Helm chart, its alerts and dashboard, on Helm and Prometheus (needs test-chart-tools)
	LPUCTL=$(CURDIR)/bin/lpuctl LPUCTL_DRA=$(CURDIR)/bin/lpuctl-dra HELM="$(HELMS)" HELM_UNITTEST=$(HELM_UNITTEST) PROMETHEUS=$(PROMETHEUS) \
	  PACKAGED=$(CURDIR)/dist/test-chart/$(CHART) \
	  go test -tags chart -json -count=1 -timeout 10m ./test/chart | go run ./test/report

.PHONY: test-chart-tools
test-chart-tools: $(HELMS) $(HELM_UNITTEST) $(PROMETHEUS)/prometheus ## build what test/chart runs: Helm, helm-unittest; fetch Prometheus (once, 4 minutes)

# Helm and helm-unittest are built in their own modules, with their own go.sum.
$(CACHE)/helm-v%/helm: MODULE = helm.sh/helm/v$(firstword $(subst ., ,$*))
$(CACHE)/helm-v%/helm:
	@go mod download $(MODULE)@v$*
	cd "$$(go env GOMODCACHE)/$(MODULE)@v$*" && $(TOOL_BUILD) -mod=readonly -ldflags '-s -w' ./cmd/helm

$(HELM_UNITTEST): MODULE = github.com/helm-unittest/helm-unittest@$(HELM_UNITTEST_VERSION)
$(HELM_UNITTEST):
	@go mod download $(MODULE)
	cd "$$(go env GOMODCACHE)/$(MODULE)" && $(TOOL_BUILD) -mod=readonly -ldflags '-s -w' ./cmd/helm-unittest

# Debian's, unpacked and not installed: promtool, and the server without its service. A machine may have old lists of packages, or none.
$(DEBIAN_PROMETHEUS)/usr/bin/prometheus:
	rm -rf $(DEBIAN_PROMETHEUS) $(DEBIAN_PROMETHEUS).new && mkdir -p $(DEBIAN_PROMETHEUS).new
	cd $(DEBIAN_PROMETHEUS).new && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } && \
	  dpkg -x prometheus_*.deb . && rm prometheus_*.deb
	mv $(DEBIAN_PROMETHEUS).new $(DEBIAN_PROMETHEUS)

$(NEW_PROMETHEUS)/prometheus: MODULE = github.com/prometheus/prometheus@$(patsubst prometheus-%,%,$(notdir $(@D)))
$(NEW_PROMETHEUS)/prometheus:
	@go mod download $(MODULE)
	mkdir -p $(@D)
	cd "$$(go env GOMODCACHE)/$(MODULE)" && GOWORK=off CGO_ENABLED=0 go build -p 2 -trimpath -buildvcs=false -mod=readonly -tags remove_all_sd \
	  -ldflags '-s -w' -o $(@D)/ ./cmd/promtool ./cmd/prometheus

.PHONY: vm
vm: package-amd64 ## boot the package on virtual machines with cards (needs QEMU; root and debootstrap the first time)
	LPUCTL_DEB="$$(echo dist/lpuctl_*_amd64.deb)" go run ./test/vm $(BOOTS)

.PHONY: vm-disk
vm-disk: ## make the disk of the virtual machines (once, 3 minutes; needs root and debootstrap)
	go run ./test/vm -disk

.PHONY: vm-lab
vm-lab: build ## let cards fail on a real kernel under QEMU, and watch serve, list and the spec (needs what vm needs, and gcc)
	LPUCTL=$(CURDIR)/bin/lpuctl go run ./test/vm/lab $(BOOTS) | go run ./test/report

.PHONY: bench
bench: build ## benchmarks, the whole process against lspci, and with cards that hang (needs FUSE and root)
	go test -run '^$$' -bench . -benchmem ./pkg/... ./internal/...
	LPUCTL=$(CURDIR)/bin/lpuctl go test -C test/e2e -run '^$$' -bench . -benchtime 10x .
	LPUCTL=$(CURDIR)/bin/lpuctl go run ./test/bench
	LPUCTL_LONG=10 go test -count=1 -v -run '^TestScrapes$$' ./cmd/lpuctl | grep scrapes:

.PHONY: bench-smoke
bench-smoke: ## each Go benchmark once, to see that it runs
	go test -run '^$$' -bench . -benchtime 1x ./pkg/... ./internal/... >/dev/null

.PHONY: bench-dra
bench-dra: ## what arcs as devices cost the scheduler, beside single devices and the plugin (needs e2e-kubelet-tools)
	@mkdir -p dist
	KUBERNETES=$(KUBERNETES) go run ./test/bench-dra -nodes 100,300$(if $(LPUCTL_LONG),$(comma)1000) -json dist/bench-dra.json | tee dist/bench-dra.txt

.PHONY: simulate-allocation
simulate-allocation: ## play pods against other vendors' rules; writes the tables and plots of docs/allocation-notes.md
	go run ./test/allocation

.PHONY: fmt
fmt: ## format the Go files
	gofmt -w $(filter %.go,$(GO_FILES))

.PHONY: clean
clean: ## remove what was built here (not the cache of tools)
	rm -rf bin dist

include packaging/package.mk
