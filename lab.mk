# To look at the report with one's own eyes: never a part of `make test`.

REPORT_LOOK ?= target/report-look
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
CHROMIUM_FLAGS = --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
  --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
  --user-data-dir='$(REPORT_LOOK)/browser'

.PHONY: report-look
## report-look: draw a sample report and, when chromium is there, screenshots and a print of it
report-look:
	@$(CARGO) run --quiet -p dendra-lab --example report_sample -- '$(REPORT_LOOK)'
ifeq ($(CHROMIUM),)
	@echo 'No chromium here: open $(REPORT_LOOK)/run.html in a browser, or install chromium (apt-get install chromium) for screenshots.'
else
	@for page in run invalid compare; do \
	  '$(CHROMIUM)' $(CHROMIUM_FLAGS) --window-size=1440,900 --screenshot='$(REPORT_LOOK)/'$$page.png "file://$(abspath $(REPORT_LOOK))/$$page.html" 2>/dev/null && \
	  '$(CHROMIUM)' $(CHROMIUM_FLAGS) --no-pdf-header-footer --print-to-pdf='$(REPORT_LOOK)/'$$page.pdf "file://$(abspath $(REPORT_LOOK))/$$page.html" 2>/dev/null && \
	  echo "$(REPORT_LOOK)/$$page.png and .pdf" || exit 1; \
	done
endif
