# Installation and packages. Included by the Makefile at the top.
ARCHES := amd64 arm64
MAINTAINER := lpuctl maintainers <lpuctl@hyperaccel.ai>
# Later releases need modules that the Go module proxy does not have.
NFPM_VERSION := v2.45.2
NFPM := $(CACHE)/nfpm-$(NFPM_VERSION)/nfpm
# Everything that is dated has the date of the source, so that the same source makes the same packages.
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
PACKAGE_VERSION := $(shell SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) packaging/version '$(VERSION)')
# Units that start containers, which are ordered after the refresh.
ENGINES := containerd crio docker k3s k3s-agent kubelet podman podman-auto-update podman-kube@ podman-restart \
	rke2-agent rke2-server
LPUCTL := bin/lpuctl
# Programs beside lpuctl, lpuctl-dra and lpuctl-top, each with a package of its own. `lpuctl dra` and `lpuctl top` start them.
COMPANIONS := dra top
# Our tools are compiled as the program is: then what they share with it is compiled once.
RUN := CGO_ENABLED=0 go run -trimpath
# Where packages install. An archive has the same below its top, and the configuration among the documents.
PREFIX = /usr
SAMPLE = /etc/lpuctl/config.yaml
# What help and manual point to, and what these pages show.
DOCUMENTS := $(filter-out docs/README.md,$(wildcard docs/*.md docs/*.svg)) dist/README.md dist/manual.md

# Always, because the date is in them.
dist/man: bin/lpuctl FORCE
	rm -rf $@ && mkdir -p $@
	bin/lpuctl help-tree | $(RUN) ./packaging/man $@ packaging/man/*.[58]
	gzip -9n $@/*

# README beside the documents, and their index under a name of its own, without links to what is in the source only.
dist/README.md: README.md
	mkdir -p $(@D)
	sed -E -e 's|\]\(docs/README\.md|](manual.md|' -e 's|\]\(docs/([^/)]*)\)|](\1)|g' -e 's/\[([^]]*)\]\((docs\/|examples\/|CONTRIBUTING|SECURITY)[^)]*\)/\1/g' $< > $@

dist/manual.md: docs/README.md
	mkdir -p $(@D)
	sed -E 's/\[([^]]*)\]\(adr\/[^)]*\)/\1/' $< > $@

dist/nfpm.yaml: packaging/nfpm.yaml dist/man $(DOCUMENTS)
	$(call DOCUMENTED,dist/man,$(DOCUMENTS)) $< > $@

# The pages of a directory and documents, as lines in place of the mark in a configuration of nfpm.
DOCUMENTED = doc() { echo "  - {src: $$1, dst: $$2/$${1\#\#*/}, type: doc, packager: rpm, file_info: {mode: 0644}}"; }; \
	{ for page in $(1)/*; do number=$${page%.gz}; doc $$page /usr/share/man/man$${number\#\#*.}; done; \
	  for page in $(2); do doc $$page /usr/share/doc/lpuctl; done; \
	} | sed -e '/\# DOCUMENTATION/{r /dev/stdin' -e 'd}'

dist/completion: bin/lpuctl
dist/completion $(COMPANIONS:%=dist/%/completion):
	rm -rf $@ && mkdir -p $@
	for shell in bash fish zsh; do $< completion $$shell > $@/$$shell; done

.PHONY: install install-files
install: $(LPUCTL) dist/man dist/completion install-files ## install into DESTDIR: program, units, documentation, completions
install-files: dist/README.md dist/manual.md
	install -D -m 0755 $(LPUCTL) $(DESTDIR)$(PREFIX)/bin/lpuctl
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system systemd/*.service systemd/*.path systemd/*.socket systemd/*.timer
	for unit in $(ENGINES); do \
	  install -D -m 0644 systemd/after-lpuctl.conf $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service.d/10-lpuctl.conf; done
	install -D -m 0644 systemd/lpuctl.preset $(DESTDIR)$(PREFIX)/lib/systemd/system-preset/50-lpuctl.preset
	install -D -m 0644 systemd/lpuctl.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/lpuctl.conf
	install -D -m 0644 systemd/lpuctl.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/lpuctl.conf
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/udev/rules.d systemd/90-lpuctl.rules
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/lpuctl/memlock systemd/memlock/*.conf
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man5 dist/man/*.5.gz
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 dist/man/*.8.gz
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/lpuctl $(DOCUMENTS)
	install -D -m 0644 dist/completion/bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lpuctl
	install -D -m 0644 dist/completion/fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/lpuctl.fish
	install -D -m 0644 dist/completion/zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_lpuctl
	[ -e $(DESTDIR)$(SAMPLE) ] || install -D -m 0644 packaging/config.yaml $(DESTDIR)$(SAMPLE)

.PHONY: package
package: $(ARCHES:%=package-%) $(foreach c,$(COMPANIONS),$(ARCHES:%=$(c)-package-%)) ## .deb and .rpm of both architectures, bills of materials and checksums, in dist
	cd dist && sha256sum *.deb *.rpm *.cdx.json > SHA256SUMS

.PHONY: release
release: package $(ARCHES:%=archive-%) release-image ## the packages, the image, the chart, and archives for machines without Go
	$(MAKE) --no-print-directory dist/$(CHART) DIGEST="$$(cat dist/image-digest)" DRA_DIGEST="$$(cat dist/dra-image-digest)" # last: of the images
	cd dist && sha256sum *.tar.gz *.tgz *.deb *.rpm *.cdx.json lpuctl-image.tar image-digest lpuctl-dra-image.tar dra-image-digest > SHA256SUMS

# The images of lpuctl and of the DRA driver, of all architectures, and the digests by which they are signed and pulled. The chart has the same
# tag.
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
MAKE_IMAGE = $(RUN) ./packaging/image -program $(1) -name 'docker.io/hyperaccel/$(1):$(CHART_VERSION)' -version '$(VERSION)' \
  -revision '$(REVISION)'
.PHONY: release-image
release-image: $(ARCHES:%=materials-%) $(ARCHES:%=dra-materials-%)
	$(call MAKE_IMAGE,lpuctl) -o dist/lpuctl-image.tar -digest dist/image-digest $(ARCHES:%=dist/%)
	$(call MAKE_IMAGE,lpuctl-dra) -o dist/lpuctl-dra-image.tar -digest dist/dra-image-digest $(ARCHES:%=dist/dra/%)

# The licences of what is linked in, and the bill of materials: beside the program for the image, and in dist.
.PHONY: $(ARCHES:%=materials-%)
$(ARCHES:%=materials-%): materials-%: dist/%/lpuctl
	rm -f dist/*_$*.cdx.json
	$(RUN) ./packaging/modules notices dist/$*/lpuctl '$(VERSION)' > dist/$*/third-party-licenses.txt
	$(RUN) ./packaging/modules sbom dist/$*/lpuctl '$(VERSION)' > dist/$*/sbom.cdx.json
	cp dist/$*/sbom.cdx.json 'dist/lpuctl_$(PACKAGE_VERSION)_linux_$*.cdx.json'

# Sorted, of nobody, and with the date of the source: the same source makes the same archive.
ARCHIVE = lpuctl_$(PACKAGE_VERSION)_linux_$*
.PHONY: $(ARCHES:%=archive-%)
$(ARCHES:%=archive-%): archive-%: materials-% top-materials-% dist/man dist/completion dist/top/man dist/top/completion
	rm -rf dist/$*/archive dist/*_$*.tar.gz
	$(MAKE) --no-print-directory install-files LPUCTL=dist/$*/lpuctl DESTDIR='dist/$*/archive/$(ARCHIVE)' PREFIX= \
	  SAMPLE=/share/doc/lpuctl/config.yaml
	$(call INSTALL_COMPANION,top,dist/$*/archive/$(ARCHIVE),zsh/site-functions)
	install -m 0644 dist/top/$*/third-party-licenses.txt 'dist/$*/archive/$(ARCHIVE)/share/doc/lpuctl/third-party-licenses-top.txt'
	install -m 0755 packaging/install.sh 'dist/$*/archive/$(ARCHIVE)/'
	install -m 0644 LICENSE CHANGELOG.md dist/$*/third-party-licenses.txt 'dist/$*/archive/$(ARCHIVE)/'
	sed -e 's|](docs/README.md|](docs/manual.md|' -e 's|](docs/|](share/doc/lpuctl/|g' README.md > 'dist/$*/archive/$(ARCHIVE)/README.md'
	chmod -R go=u,go-w dist/$*/archive
	tar -c -C dist/$*/archive --format=ustar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner '$(ARCHIVE)' | \
	  gzip -9n > 'dist/$(ARCHIVE).tar.gz'

# The chart for `helm install FILE`, without its tests. With DIGEST it takes the image by that, and with DRA_DIGEST that of the driver; the
# digests of a release must not get into a chart that is packed later, and `make test-chart` packs one elsewhere, beside no released one. A
# tag of another version would make a chart that pulls an image of this one.
dist/$(CHART) dist/test-chart/$(CHART): FORCE
	@case '$(VERSION)' in v[0-9]*-*-g* | *-dirty) ;; v[0-9]*) [ '$(VERSION)' = v$(CHART_VERSION) ] || \
	  { echo "packaging/helm/lpuctl/Chart.yaml says $(CHART_VERSION), and the tag $(VERSION)" >&2; exit 1; } ;; esac
	rm -rf $(@D)/chart $(@D)/lpuctl-chart-*.tgz && mkdir -p $(@D)/chart
	cp -r packaging/helm/lpuctl $(@D)/chart && rm -r $(@D)/chart/lpuctl/tests $(@D)/chart/lpuctl/.helmignore
	cp LICENSE $(@D)/chart/lpuctl
	$(if $(DIGEST),sed -i 's/^  digest: ""/  digest: $(DIGEST)/' $(@D)/chart/lpuctl/values.yaml)
	$(if $(DRA_DIGEST),sed -i 's/^  draDigest: ""/  draDigest: $(DRA_DIGEST)/' $(@D)/chart/lpuctl/values.yaml)
	chmod -R u=rwX,go=rX $(@D)/chart
	tar -c -C $(@D)/chart --format=ustar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner lpuctl | gzip -9n > $@

.PHONY: $(ARCHES:%=package-%)
$(ARCHES:%=package-%): package-%: materials-% dist/nfpm.yaml dist/completion $(NFPM)
	rm -rf dist/$*/root dist/lpuctl_*_$*.deb dist/lpuctl-[0-9]*.$(RPM_ARCH_$*).rpm
	$(MAKE) --no-print-directory install-files LPUCTL=dist/$*/lpuctl DESTDIR=dist/$*/root
	install -m 0644 packaging/deb/copyright dist/$*/$(DEB_DOC)/copyright
	gzip -9nc CHANGELOG.md > dist/$*/$(DEB_DOC)/changelog.gz
	$(call DEB_CHANGELOG,lpuctl) > dist/$*/$(DEB_DOC)/changelog.Debian.gz
	gzip -9nc dist/$*/third-party-licenses.txt > dist/$*/$(DEB_DOC)/third-party-licenses.gz
	chmod -R go=u,go-w dist/$*/root dist/$*/third-party-licenses.txt
	$(call PACK,dist/$*/root,dist/nfpm.yaml)
DEB_CHANGELOG = sed 's/@PACKAGE@/$(1)/; s/@VERSION@/$(PACKAGE_VERSION)-1/; s/@MAINTAINER@/$(MAINTAINER)/; s/@DATE@/$(shell date -R -u -d @$(SOURCE_DATE_EPOCH))/' \
	  packaging/deb/changelog.in | gzip -9n
PACK = for packager in deb rpm; do \
	  ROOT=$(1) ARCH=$* PACKAGE_VERSION='$(PACKAGE_VERSION)' MAINTAINER='$(MAINTAINER)' \
	  $(NFPM) package -f $(2) -p $$packager -t dist/; done

# The driver, for hosts that do not run it from its image, and for `lpuctl dra`; the screen, for `lpuctl top`.
define COMPANION
dist/$(1)/man: bin/lpuctl-$(1) FORCE
	rm -rf $$@ && mkdir -p $$@
	bin/lpuctl-$(1) help-tree | $$(RUN) ./packaging/man $$@
	gzip -9n $$@/*

dist/$(1)/nfpm.yaml: packaging/nfpm-$(1).yaml dist/$(1)/man
	$$(call DOCUMENTED,dist/$(1)/man) $$< > $$@

dist/$(1)/completion: bin/lpuctl-$(1)

.PHONY: $(ARCHES:%=$(1)-materials-%)
$(ARCHES:%=$(1)-materials-%): $(1)-materials-%: dist/$(1)/%/lpuctl-$(1)
	$$(RUN) ./packaging/modules notices $$< '$$(VERSION)' > $$(<D)/third-party-licenses.txt
	$$(RUN) ./packaging/modules sbom $$< '$$(VERSION)' > $$(<D)/sbom.cdx.json

.PHONY: $(ARCHES:%=$(1)-package-%)
$(ARCHES:%=$(1)-package-%): $(1)-package-%: $(1)-materials-% dist/$(1)/nfpm.yaml dist/$(1)/completion $$(NFPM)
	rm -rf dist/$(1)/$$*/root dist/lpuctl-$(1)_*_$$*.deb dist/lpuctl-$(1)-*.$$(RPM_ARCH_$$*).rpm
	$$(call INSTALL_COMPANION,$(1),dist/$(1)/$$*/root/usr,zsh)
	install -D -m 0644 packaging/deb/copyright dist/$(1)/$$*/$$(DEB_DOC)-$(1)/copyright
	sed -i 's|/usr/share/doc/lpuctl/|/usr/share/doc/lpuctl-$(1)/|' dist/$(1)/$$*/$$(DEB_DOC)-$(1)/copyright
	gzip -9nc CHANGELOG.md > dist/$(1)/$$*/$$(DEB_DOC)-$(1)/changelog.gz
	$$(call DEB_CHANGELOG,lpuctl-$(1)) > dist/$(1)/$$*/$$(DEB_DOC)-$(1)/changelog.Debian.gz
	gzip -9nc dist/$(1)/$$*/third-party-licenses.txt > dist/$(1)/$$*/$$(DEB_DOC)-$(1)/third-party-licenses.gz
	chmod -R go=u,go-w dist/$(1)/$$*/root dist/$(1)/$$*/third-party-licenses.txt
	$$(call PACK,dist/$(1)/$$*/root,dist/$(1)/nfpm.yaml)

dist/$(1)/%/lpuctl-$(1): FORCE
	GOOS=linux GOARCH=$$* $$(BUILD) -o $$@ ./cmd/lpuctl-$(1)
endef
$(foreach c,$(COMPANIONS),$(eval $(call COMPANION,$(c))))

# A companion with its manual and completions, in a directory, with the one below share of zsh's.
define INSTALL_COMPANION
install -D -m 0755 dist/$(1)/$*/lpuctl-$(1) '$(2)/bin/lpuctl-$(1)'
	install -D -m 0644 -t '$(2)/share/man/man8' dist/$(1)/man/*.8.gz
	install -D -m 0644 dist/$(1)/completion/bash '$(2)/share/bash-completion/completions/lpuctl-$(1)'
	install -D -m 0644 dist/$(1)/completion/fish '$(2)/share/fish/vendor_completions.d/lpuctl-$(1).fish'
	install -D -m 0644 dist/$(1)/completion/zsh '$(2)/share/$(3)/_lpuctl-$(1)'
endef

# What an .rpm has elsewhere, or not at all, goes to the other documentation.
DEB_DOC := root/usr/share/doc/lpuctl
RPM_ARCH_amd64 := x86_64
RPM_ARCH_arm64 := aarch64

# Always, because the version is in it; the compiler has a cache.
dist/%/lpuctl: FORCE
	GOOS=linux GOARCH=$* $(BUILD) -o $@ ./cmd/lpuctl

.PHONY: FORCE
FORCE:

$(NFPM):
	GOBIN=$(dir $@) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

.PHONY: package-check
package-check: release ## check packages and archives: 26 rows, each passes or says why not (needs root and Debian's tools)
	packaging/check/run dist
