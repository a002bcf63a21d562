// Browsers start no worker for a page that was opened from disk, and the site's search is one. Here it runs in a
// hidden frame of the page instead.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.inner = new Promise((ready) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.addEventListener("load", () => {
          const { contentWindow, contentDocument } = frame;
          contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = contentDocument.createElement("script");
          script.src = new URL(url, document.baseURI);
          script.addEventListener("load", () => ready(contentWindow));
          contentDocument.body.append(script);
        });
        document.body.append(frame);
      });
    }

    async postMessage(data) {
      (await this.inner).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
