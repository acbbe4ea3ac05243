#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "ledger.h"  // made from ledger.d when the extension is built

namespace {

class Account {
public:
    explicit Account(std::string owner) : owner_(std::move(owner)) {}

    std::int64_t deposit(std::int64_t amount)
    {
        balance_ += amount;
        LEDGER_DEPOSIT(owner_.c_str(), amount, balance_);
        return balance_;
    }

    std::int64_t withdraw(std::int64_t amount)
    {
        if (amount > balance_) {
            LEDGER_REFUSED(owner_.c_str(), amount, balance_);
            throw std::runtime_error("there is not enough on the account of " + owner_);
        }
        balance_ -= amount;
        LEDGER_WITHDRAW(owner_.c_str(), amount, balance_);
        return balance_;
    }

private:
    std::string owner_;
    std::int64_t balance_ = 0;
};

}  // namespace

PYBIND11_MODULE(ledger, module)
{
    module.doc() = "Accounts that can be watched.";
    pybind11::class_<Account>(module, "Account")
        .def(pybind11::init<std::string>(), pybind11::arg("owner"))
        .def("deposit", &Account::deposit, pybind11::arg("amount"), "Add money; return the balance.")
        .def("withdraw", &Account::withdraw, pybind11::arg("amount"), "Take money; return the balance.");
}
