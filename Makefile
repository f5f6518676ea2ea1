# Everything a developer or CI does with lpuctl. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lpuctl-e2e
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GO_FILES = $(shell git ls-files -co --exclude-standard '*.go' go.mod go.sum)
SHELL_FILES = $(shell git ls-files -co --exclude-standard '*.sh' .ci/run packaging/version 'packaging/check/*' 'packaging/deb/p*')
FUZZTIME ?= 20s
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
# The race detector needs a C compiler; without one the tests run all the same.
RACE := $(if $(shell command -v $(or $(CC),cc) gcc),-race)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/lpuctl ## build bin/lpuctl, the static binary that is shipped

bin/lpuctl: $(GO_FILES)
	$(BUILD) -o $@ ./cmd/lpuctl

.PHONY: demo
demo: build ## the main job on a simulated Orion server: no hardware, no root
	@bash docs/demo.sh bin/lpuctl

.PHONY: test
test: ## unit tests, with the race detector where there is a C compiler: no root, no container tools
	@$(if $(RACE),:,echo "without the race detector: there is no C compiler (apt-get install gcc libc6-dev)")
	go test -json $(RACE) ./... | go run ./test/report

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@go list -f '{{.Dir}}' ./... | while read -r dir; do \
	  grep -hos 'func Fuzz[A-Za-z0-9]*' "$$dir"/*_test.go | sed 's/func //' | while read -r target; do \
	    echo "== $$target in $${dir#$(CURDIR)/}"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	  done; done

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, shellcheck, formatting
	$(GOLANGCI) run ./...
	cd test/e2e && $(GOLANGCI) run --config ../../.golangci.yml ./...
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_FILES); else echo "lint: shellcheck is missing (apt-get install shellcheck)"; exit 1; fi

$(GOLANGCI):
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: e2e
e2e: build ## tests on real consumers (needs root; names what is missing)
	LPUCTL=$(CURDIR)/bin/lpuctl go test -C test/e2e -json -count=1 -timeout 15m ./... | go run ./test/report

.PHONY: vm
vm: package-amd64 ## boot the package on virtual machines with cards (needs QEMU; root and debootstrap the first time)
	LPUCTL_DEB="$$(echo dist/*_amd64.deb)" go run ./test/vm $(BOOTS)

.PHONY: bench
bench: build ## benchmarks, and the whole process against lspci
	go test -run '^$$' -bench . -benchmem ./pkg/...
	LPUCTL=$(CURDIR)/bin/lpuctl go run ./test/bench

.PHONY: fmt
fmt: ## format the Go files
	gofmt -w $(filter %.go,$(GO_FILES))

.PHONY: clean
clean: ## remove what was built here (not the cache of tools)
	rm -rf bin dist

include packaging/package.mk
