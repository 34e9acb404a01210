// Sends what its argument says with fluent-logger from npm; ends when all callbacks came, with status 1 on an error.
const { options, records } = JSON.parse(process.argv[2]);
const logger = require(process.argv[3] + "/fluent-logger");
if (options.tlsOptions && options.tlsOptions.caFile) {
  options.tlsOptions.ca = require("fs").readFileSync(options.tlsOptions.caFile);
}
options.internalLogger = { info() {}, error: console.error };
const sender = logger.createFluentSender("node", options);
sender.on("error", (error) => {
  console.error("error", error.message);
  process.exit(1);
});
let left = records.length;
for (const record of records) {
  sender.emit("sub", record, (error) => {
    if (error) {
      console.error("callback", error.message);
      process.exit(1);
    }
    if (--left === 0) sender.end(null, null, () => process.exit(0));
  });
}
